"""Build a run from its config: the options left open, model, data, task, loggers, trainer."""
