"""Show a sweep's jobs as one table, best first, and the means over its seeds."""

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.atomic_files import write_csv
from vitlab.monitors import better, format_metric, metric_of
from vitlab.reports.seeds import COLUMNS, write_seed_table

WHOLE = ("metric", "runs", "mean", "±", "seconds", "#", "starts")
LONGEST_NUMBER = 8  # letters of one that is shown as it is


def write_tables(sweep: Path, outcomes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write results.csv and seeds.csv into a sweep's folder, from the outcomes of its jobs; return their rows, jobs
    best first."""
    return write_table(sweep, outcomes), write_seed_table(sweep, outcomes)


def print_tables(sweep: Path, rows: list[dict[str, Any]], seeds: list[dict[str, Any]]) -> None:
    """Print what the jobs and their means over seeds come to, by what varies; scores are whole at 80 columns."""
    print(f"\n{len(rows)} job(s) of this sweep, best first, in {sweep / 'results.csv'}")
    if rows:
        score = next(iter(rows[0]))
        told = telling(rows, {score, "seconds", "status"})
        print_rows([{**row, score: of(score, row.get(score)), "seconds": f"{row['seconds']:.0f}"} for row in told])
    if seeds:
        print(f"\nmeans over seeds and their 95 % intervals, in {sweep / 'seeds.csv'}")
        told = telling([row for row in seeds if metric_of(row["metric"]).leads] or seeds)
        figures = [{name: of(row["metric"], row[name]) for name in ("mean", "±")} for row in told]
        rows = [{**row, **words} for row, words in zip(told, figures, strict=True)]
        print_rows([{name: value for name, value in row.items() if name != "values"} for row in rows])


def of(metric: str, value: float | None) -> str:
    """Write a score; nothing where there is none."""
    return "" if value is None else format_metric(metric, value)


def write_table(sweep: Path, outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write results.csv into a sweep's folder, from the outcomes of its jobs; return the rows, best first, failed jobs
    last."""
    sign = {"min": 1, "max": -1}
    outcomes = sorted(
        outcomes,
        key=lambda o: (o["status"] != "done", o["score"] is None, (o["score"] or 0) * sign[better(str(o["monitor"]))]),
    )
    rows = [
        {str(o["monitor"]): o["score"], **o["overrides"], "seconds": o["seconds"], "status": o["status"]}
        | {"folder": o["folder"]}
        for o in outcomes
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_csv(sweep / "results.csv", columns, [[row.get(name) for name in columns] for row in rows])
    return rows


def telling(rows: list[dict[str, Any]], always: Collection[str] = COLUMNS) -> list[dict[str, Any]]:
    """Drop the columns that are the same in all rows, except those in `always`."""
    same = [name for name in rows[0] if name not in always and len({row.get(name) for row in rows}) == 1]
    return [{name: value for name, value in row.items() if name not in same} for row in rows]


def shown(value: Any) -> str:
    """Format a value for reading: long numbers to their first significant digits."""
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        with suppress(ValueError):
            return f"{float(value):.4g}"
    return "" if value is None else str(value)


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Shorten dotted keys to their ends, as long as these must be to differ: optimizer.lr alone is lr."""
    keys = list(keys)
    ends = {key: [".".join(key.split(".")[-n:]) for n in range(1, key.count(".") + 2)] for key in keys}
    counts = Counter(end for each in ends.values() for end in each)
    return {key: next((end for end in ends[key] if counts[end] == 1), key) for key in keys}


def column(name: str) -> Column:
    """Make a column: figures stay whole, keys and their values are folded where there is no room."""
    return Column(Text(name), overflow="fold", no_wrap=name in WHOLE or "/" in name)


def print_rows(rows: list[dict[str, Any]]) -> None:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "folder"]
    short = short_names(names)
    table = Table(*(column(short[name]) for name in names))
    for row in rows:
        table.add_row(*(Text(shown(row.get(name))) for name in names))
    Console(markup=False).print(table)
