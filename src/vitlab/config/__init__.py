"""Turn YAML and command line into objects. With run and programs, the room that knows Hydra."""
