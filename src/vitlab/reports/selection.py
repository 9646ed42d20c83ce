"""Select and sort indexed runs by conditions on their values, such as model.depth=12 or test/acc1>0.9."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import yaml

from vitlab.errors import ConfigError
from vitlab.reports.index import IndexedRun
from vitlab.spelling import suggest_name

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda value, part: str(part) in str(value),
}
CONDITION = re.compile(r"([\w./@-]+?)\s*(!=|<=|>=|==|=|<|>|~)\s*(.*)")


def select(runs: Iterable[IndexedRun], conditions: Sequence[str]) -> list[IndexedRun]:
    """Return the runs for which all conditions hold: KEY=VALUE, !=, <, <=, >, >=, and KEY~PART of a text. A run without
    the key fulfils none but !=. Raises ConfigError for what is no condition, and for a key that no run has."""
    runs = list(runs)
    for condition in conditions:
        found = CONDITION.fullmatch(condition.strip())
        if found is None:
            raise ConfigError(f"where={condition} is not a condition; type KEY=VALUE, or !=, <, <=, >, >=, ~")
        key = full_key(runs, found[1])
        try:
            wanted = yaml.safe_load(found[3])
        except yaml.YAMLError as error:
            raise ConfigError(f"where={condition}: the value cannot be read; put it in quotes") from error
        runs = [run for run in runs if holds(run.values.get(key), found[2], wanted)]
    return runs


def holds(value: Any, sign: str, wanted: Any) -> bool:
    if value is None:
        return sign == "!=" or wanted is None
    try:
        return bool(COMPARE[sign](value, wanted))
    except TypeError:  # a number beside a text
        return False


def full_key(runs: Sequence[IndexedRun], key: str) -> str:
    """Return the whole key that the end of one names, as depth for model.depth. Raises ConfigError for an end of no
    key, or of several."""
    known = {name for run in runs for name in run.values}
    if key in known or not runs:
        return key
    ends = sorted(name for name in known if name.endswith((f".{key}", f"/{key}")))
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ConfigError(f"{key} is the end of several keys: {', '.join(ends)}; give one of them")
    raise ConfigError(f"no run has a key {key}{suggest_name(key, known)}")


def order(runs: Sequence[IndexedRun], key: str, best_first: bool) -> list[IndexedRun]:
    """Sort runs by a value, those without one last."""
    there = [run for run in runs if run.values.get(key) is not None]
    kinds = {isinstance(run.values[key], str) for run in there}
    ranked = sorted(
        there, key=lambda run: str(run.values[key]) if len(kinds) > 1 else run.values[key], reverse=best_first
    )
    return ranked + [run for run in runs if run.values.get(key) is None]


def differing(runs: Sequence[IndexedRun]) -> list[str]:
    """List the settings in which runs differ, first those that a user has set. Of several with the same values in all
    runs, such as those that refer to another one, one is listed: that which a user has set, else the shortest, and a
    `_target_` only where there is nothing else."""
    chosen = {key for run in runs for key in run.set_keys}

    def rank(key: str) -> tuple[bool, bool, int]:
        return key not in chosen, "_target_" in key, len(key)

    keys = sorted({key for run in runs for key in run.values}, key=rank, reverse=True)
    by_values = {tuple(str(run.values.get(key)) for run in runs): key for key in keys}
    kept = {key for values, key in by_values.items() if len(set(values)) > 1}
    listed = [key for key in dict.fromkeys(key for run in runs for key in run.values) if key in kept]
    return sorted(listed, key=lambda key: rank(key)[:2])
