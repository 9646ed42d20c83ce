"""Read the JSON files of a sweep, and check the types of their values."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from vitlab.errors import CheckpointError

Kind = TypeVar("Kind")


def read_json(path: Path, kind: type[Kind], remedy: str = "restore it, or give another sweep=NAME") -> Kind:
    """Read a dataclass or TypedDict from a file; unknown keys are ignored. vitlab writes these files atomically, so
    that one with a wrong value was edited. Raises CheckpointError, which ends with `remedy`, and FileNotFoundError."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes(), strict=True)
    except IsADirectoryError as error:
        raise CheckpointError(f"{path} is damaged: it is a folder; {remedy}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        what = first["msg"] if not key or first["type"] == "missing" else f"{first['msg']}, not {first['input']!r}"
        raise CheckpointError(f"{path} is damaged: {f'{key}: ' if key else ''}{what}; {remedy}") from error
