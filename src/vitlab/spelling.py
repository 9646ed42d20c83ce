"""Suggest what a misspelt name was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_LISTED = 12


def format_count(number: int, thing: str) -> str:
    """Write a number of things: 1 image, 2 images."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def suggest_name(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of an error message: the nearest of the known names, or all of them if none is near and they are
    few. `prefix` is put before the nearest name."""
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {prefix}{near[0]}?"
    return f"; it is one of: {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""
