"""Apply a command's options of generation and of prompts to a finished run."""

from typing import Any

from omegaconf import DictConfig

from vitlab.errors import ConfigError
from vitlab.run.inference.saved_run import SavedRun

OF_WRITING = {  # keys of a task, what one without them does, and the command's keys that change them
    "decoding": "writes no texts; leave out beam_width= and length_penalty=",
    "templates": "does not compare images with texts; leave out templates=",
}


def apply_generation_options(saved: SavedRun, cfg: DictConfig) -> SavedRun:
    """Return the run with the options of the command. Raises ConfigError for an option that the run's task lacks."""
    changes = generation_changes(cfg)
    for key in changes.get("task", {}):
        if key not in saved.config.task:
            raise ConfigError(f"run={cfg.run} {OF_WRITING[key]}")
    return saved.change_config(changes)


def generation_changes(cfg: DictConfig) -> dict[str, Any]:
    """Return the changes of the run's config that the command asks for; null changes nothing."""
    given = {"width": cfg.beam_width, "length_penalty": cfg.length_penalty}
    given = {key: value for key, value in given.items() if value is not None}
    changed: dict[str, Any] = {"decoding": given} if given else {}
    if cfg.templates is not None:
        changed["templates"] = [str(template) for template in cfg.templates]
    return {"task": changed} if changed else {}
