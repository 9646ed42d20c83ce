"""Summarise a sweep over seeds: means with confidence intervals."""

from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from vitlab.atomic_files import write_csv
from vitlab.reports.intervals import half_width
from vitlab.reports.run import read_result

COLUMNS = ("metric", "runs", "mean", "±", "values")


def write_seed_table(sweep: Path, outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write seeds.csv into a sweep's folder and return its rows.

    For jobs that differ only in their seed, it holds the mean of the best validation score and of
    each test metric, half the width of its 95 % interval,
    and the values. Nothing is written if no two jobs do.
    """
    groups: dict[tuple[tuple[str, str], ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        result = read_result(sweep / outcome["folder"])
        if outcome["status"] == "done" and "seed" in outcome["overrides"] and result is not None:
            key = tuple((name, value) for name, value in outcome["overrides"].items() if name != "seed")
            scores = {} if result.get("score") is None else {str(outcome["monitor"]): result["score"]}
            for metric, value in (scores | result.get("test", {})).items():
                groups[key][metric].append(value)
    rows = [
        {**dict(key), "metric": metric, "runs": len(values), "mean": mean(values), "±": half_width(values)}
        | {"values": " ".join(f"{value:.4f}" for value in values)}
        for key, metrics in groups.items()
        for metric, values in metrics.items()
    ]
    if not any(len(values) > 1 for metrics in groups.values() for values in metrics.values()):
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_csv(sweep / "seeds.csv", columns, [[row.get(name) for name in columns] for row in rows])
    return rows
