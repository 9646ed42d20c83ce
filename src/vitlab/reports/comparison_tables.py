"""Lay out compared recipes as tables: rows by the names of their columns."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from vitlab.monitors import find_metric
from vitlab.reports.comparison import ACCURACY, Pair, Recipe, is_run_key
from vitlab.reports.intervals import bca_interval, spread_of_test_set, student_interval


def means(recipes: Sequence[Recipe]) -> list[dict[str, Any]]:
    """Make a row for each recipe and test metric: mean over the seeds, Student's and the BCa interval (that of a
    share within 0 to 1), and how much an accuracy varies by the choice of test images alone."""
    rows = []
    for recipe in recipes:
        runs = list(recipe.runs.values())
        for metric in sorted(set.intersection(*(set(run.metrics) for run in runs))):
            values = [run.metrics[metric] for run in runs]
            row = {"recipe": recipe.label, "metric": metric, "seeds": len(values), "mean": fmean(values)}
            if len(values) > 1 and all(map(isfinite, values)):
                student, bca = student_interval(values), bca_interval(values)
                if find_metric(metric).unit == "percent":
                    student = student.clip(0, max(1.0, *values))
                row |= {
                    "student_low": student.low,
                    "student_high": student.high,
                    "bca_low": bca.low,
                    "bca_high": bca.high,
                }
            if metric == ACCURACY and runs[0].samples:
                row["test_set_spread"] = spread_of_test_set(fmean(values), len(runs[0].samples))
            rows.append(row)
    return rows


def differences(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Make a row for each pair of recipes. `gain` is how much the second is better than the first."""
    rows = []
    for pair in pairs:
        row: dict[str, Any] = {"first": pair.first.label, "second": pair.second.label, "metric": pair.metric}
        row |= {"seeds": len(pair.gains), "gain": pair.gain, "half": pair.half, "test": pair.test, "p": pair.p}
        row |= {"holm_p": pair.adjusted, "comparisons": pair.comparisons}
        if pair.interval is not None:
            row |= {"interval_low": pair.interval.low, "interval_high": pair.interval.high}
        if pair.counts is not None:
            row |= dict(zip(("both_right", "only_first", "only_second", "both_wrong"), pair.counts, strict=True))
        rows.append(row)
    return rows


def list_samples(pair: Pair) -> list[dict[str, Any]]:
    """Make a row for each sample, in the first seed that both have: first those on which one model alone is `right`,
    then neither, then both."""
    seed = min(pair.first.runs.keys() & pair.second.runs.keys(), default=None)
    a, b = (one.runs[seed] if seed is not None else next(iter(one.runs.values())) for one in (pair.first, pair.second))
    first, second = pair.first.label, pair.second.label
    kinds = {(True, False): first, (False, True): second, (False, False): "neither", (True, True): "both"}
    rows = [
        {"index": key[0], "name": key[1], "seed": seed, "true": true, first: guess, second: b.samples[key][1]}
        | {"right": kinds[guess == true, b.samples[key][1] == true]}
        for key, (true, guess) in a.samples.items()
        if key in b.samples
    ]
    return sorted(rows, key=lambda row: list(kinds.values()).index(row["right"]))


def find_differing_settings(recipes: Sequence[Recipe]) -> list[dict[str, Any]]:
    """Make a row for each key of the configs that is not the same in all recipes, names and seeds apart; first the keys
    that the user has set."""
    settings = [next(iter(recipe.runs.values())).settings for recipe in recipes]
    keys = [key for key in dict.fromkeys(k for one in settings for k in one) if not is_run_key(key)]
    rows = [{"key": key, **{r.label: one.get(key) for r, one in zip(recipes, settings, strict=True)}} for key in keys]
    rows = [row for row in rows if len({str(value) for name, value in row.items() if name != "key"}) > 1]
    chosen = {key for recipe in recipes for run in recipe.runs.values() for key in run.set_keys}
    return sorted(rows, key=lambda row: row["key"] not in chosen)
