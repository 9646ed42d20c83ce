"""Read the files of a sweep. They are written whole, so that one that cannot be read was damaged by somebody else."""

import json
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from vitlab.config.annotations import accepts
from vitlab.errors import CheckpointError

Kind = TypeVar("Kind")
OTHER = "put back what was there, or give another sweep=NAME"


def stored(path: Path, kind: type[Kind], remedy: str = OTHER) -> Kind:
    """Read a dataclass from a file; keys that it does not have are passed over. Raises CheckpointError, with the
    remedy, for a damaged one, and FileNotFoundError."""
    found, hints = content(path, remedy), get_type_hints(kind)
    for name, hint in hints.items():
        if name in found and not accepts(hint, found[name]):
            raise damaged(path, remedy, f", {name} is {found[name]!r}")
    try:
        return kind(**{name: found[name] for name in hints if name in found})
    except TypeError as error:  # of the keys that have to be there
        raise damaged(path, remedy, ", and lacks a key") from error


def content(path: Path, remedy: str = OTHER) -> dict[str, Any]:
    """Read the keys and values of a file. Raises CheckpointError for a damaged one, and FileNotFoundError."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, IsADirectoryError) as error:
        raise damaged(path, remedy) from error
    if not isinstance(found, dict):
        raise damaged(path, remedy)
    return found


def damaged(path: Path, remedy: str = OTHER, how: str = "") -> CheckpointError:
    return CheckpointError(f"{path} is damaged{how}: {remedy}")
