"""Take from a command how a run is to write, or to compare images with texts, where it says so."""

from typing import Any

from vitlab.config.nodes import Node


def changed_writing(cfg: Node) -> dict[str, Any]:
    """What the command changes of how a run writes, or compares with texts; a run that does not refuses it."""
    given = {"width": cfg.beam_width, "length_penalty": cfg.length_penalty}
    given = {key: value for key, value in given.items() if value is not None}
    changed: dict[str, Any] = {"decoding": given} if given else {}
    if cfg.templates is not None:
        changed["templates"] = [str(template) for template in cfg.templates]
    return {"task": changed} if changed else {}
