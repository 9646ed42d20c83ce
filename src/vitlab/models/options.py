"""Refusals of a model's options: which one is wrong, and what would be right."""

from collections.abc import Collection


def one_of(key: str, value: str, options: Collection[str]) -> None:
    if value not in options:
        raise ValueError(f"{key} '{value}' is not one of: {', '.join(options)}")


def at_least(least: int, **values: float | None) -> None:
    """Numbers by their keys; None stands for an option that is not used."""
    for key, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{key} {value} is not at least {least}")


def rates(**values: float) -> None:
    """Probabilities of dropping something, by their keys."""
    for key, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{key} {value} is not in [0, 1)")
