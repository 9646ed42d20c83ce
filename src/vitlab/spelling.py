"""Guess what a misspelt name was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 12


def instead_of(name: str, known: Iterable[str], prefix: str = "") -> str:
    """End a refusal: with the nearest of the known names, or, if none is near and they are few, all of them; each with
    what stands before it."""
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {prefix}{near[0]}?"
    return f"; it is one of: {', '.join(names)}" if 0 < len(names) <= MOST_LISTED else ""
