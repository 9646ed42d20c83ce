"""Quote lines of the source with their file and line number, as they are when the page is written."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import vitlab

ROOT = Path(vitlab.__file__).parents[1]


class SourceLine(NamedTuple):
    """A line of the source: its file, from the folder that holds vitlab, its number from 1, and its text."""

    file: str
    number: int
    text: str


def find_line(function: Callable[..., Any], part: str) -> SourceLine:
    """Find the one line of a function that contains `part`. Raises LookupError if there is none, or several."""
    inner = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(inner)
    found = [number for number, line in enumerate(lines) if part in line]
    if len(found) != 1:
        raise LookupError(f"'{part}' is in {len(found)} lines of {inner.__qualname__}, not in one")
    path = Path(inspect.getsourcefile(inner) or "").resolve()
    file = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)  # or code of the user
    return SourceLine(file.as_posix(), first + found[0], lines[found[0]].strip())
