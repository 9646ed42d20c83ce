"""Refusals of a model's options: which one is wrong, and what would be right."""

from collections.abc import Collection


def one_of(key: str, value: str, options: Collection[str]) -> None:
    if value not in options:
        raise ValueError(f"{key} '{value}' is not one of: {', '.join(options)}")
