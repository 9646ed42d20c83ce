"""Turn labels as a data set writes them into class names and their numbers."""

import re
from collections import Counter
from collections.abc import Iterable

from vitlab.errors import ConfigError

MOST_CLASSES = 10_000_000  # classes numbered from 0, each of which gets a name, whether it occurs or not
INTEGER = re.compile(r"-?[0-9]{1,18}")  # longer ones are names


def check_distinct(names: Iterable[str] | None) -> None:
    """Raise ConfigError for a name of two classes."""
    for name, count in Counter(names or ()).items():
        if count > 1:
            raise ConfigError(f"data.source.class_names holds '{name}' {count} times; give each class a different name")


def number_labels(labels: Iterable[str], names: list[str] | None) -> tuple[list[str], dict[str, int]]:
    """Give class names, and the class that each label means.

    `names` null: the labels themselves, sorted, whole numbers by value. Given names are the labels; if no label is
    among them and all are whole numbers, these count the names from 0.
    """
    found = set(labels)
    whole = all(INTEGER.fullmatch(label) for label in found)
    if names is None:
        names = sorted(found, key=lambda label: (int(label), label)) if whole else sorted(found)
    elif whole and not found & set(names):
        return names, {str(number): number for number in range(len(names))}
    return names, {name: number for number, name in enumerate(names)}
