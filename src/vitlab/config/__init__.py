"""From YAML and command line to objects. With run and programs, the room that knows Hydra."""
