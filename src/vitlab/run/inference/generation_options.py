"""Take from a command how a run is to write, or to compare images with texts, where it says so."""

from typing import Any

from omegaconf import DictConfig

from vitlab.errors import ConfigError
from vitlab.run.inference.saved_run import SavedRun

OF_WRITING = {  # keys of a task, what one without them does, and the command's keys that change them
    "decoding": "writes no texts; leave beam_width= and length_penalty= out",
    "templates": "compares no images with texts; leave templates= out",
}


def with_writing(saved: SavedRun, cfg: DictConfig) -> SavedRun:
    """Open a run to write, or to compare with texts, as the command says. Raises ConfigError for one that does not."""
    changes = changed_writing(cfg)
    for key in changes.get("task", {}):
        if key not in saved.config.task:
            raise ConfigError(f"run={cfg.run} {OF_WRITING[key]}")
    return saved.changed(changes)


def changed_writing(cfg: DictConfig) -> dict[str, Any]:
    """What the command changes of how a run writes, or compares with texts."""
    given = {"width": cfg.beam_width, "length_penalty": cfg.length_penalty}
    given = {key: value for key, value in given.items() if value is not None}
    changed: dict[str, Any] = {"decoding": given} if given else {}
    if cfg.templates is not None:
        changed["templates"] = [str(template) for template in cfg.templates]
    return {"task": changed} if changed else {}
