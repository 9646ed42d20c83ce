"""Tables of a sweep: its jobs, best first, and the means over its seeds."""

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.atomic_files import write_csv
from vitlab.monitors import better, find_metric, format_metric
from vitlab.reports.seeds import COLUMNS, write_seed_table
from vitlab.spelling import format_count

UNBROKEN = ("metric", "runs", "mean", "±", "seconds", "#", "starts")
LONGEST_NUMBER = 8  # letters; longer numbers are rounded


def write_tables(sweep: Path, outcomes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write results.csv and seeds.csv into a sweep's folder, and return the rows of both."""
    return write_table(sweep, outcomes), write_seed_table(sweep, outcomes)


def print_tables(sweep: Path, rows: list[dict[str, Any]], seeds: list[dict[str, Any]]) -> None:
    """Print the jobs and the means over seeds, with the columns that vary. Scores stay unbroken at 80 columns."""
    print(f"\n{format_count(len(rows), 'job')} of this sweep, best first, in {sweep / 'results.csv'}")
    if rows:
        score = next(iter(rows[0]))
        jobs = drop_constant_columns(rows, {score, "seconds", "status"})
        print_rows(
            [{**row, score: format_score(score, row.get(score)), "seconds": f"{row['seconds']:.0f}"} for row in jobs]
        )
    if seeds:
        print(f"\nmeans over seeds and their 95 % intervals, in {sweep / 'seeds.csv'}")
        means = drop_constant_columns([row for row in seeds if find_metric(row["metric"]).leads] or seeds)
        figures = [{name: format_score(row["metric"], row[name]) for name in ("mean", "±")} for row in means]
        rows = [{**row, **texts} for row, texts in zip(means, figures, strict=True)]
        print_rows([{name: value for name, value in row.items() if name != "values"} for row in rows])


def format_score(metric: str, value: float | None) -> str:
    """Format the value of a metric; an empty text for None."""
    return "" if value is None else format_metric(metric, value)


def write_table(sweep: Path, outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write results.csv into a sweep's folder, and return its rows: a job each, best first, failed jobs last."""
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


def drop_constant_columns(rows: list[dict[str, Any]], always: Collection[str] = COLUMNS) -> list[dict[str, Any]]:
    """Drop the columns with the same value in all rows, except for the columns `always`."""
    same = [name for name in rows[0] if name not in always and len({row.get(name) for row in rows}) == 1]
    return [{name: value for name, value in row.items() if name not in same} for row in rows]


def format_value(value: Any) -> str:
    """Format a value for a table; long numbers are rounded to four significant digits."""
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        with suppress(ValueError):
            return f"{float(value):.4g}"
    return "" if value is None else str(value)


def shorten_keys(keys: Iterable[str]) -> dict[str, str]:
    """Map each dotted key to its shortest ending that no other key has: optimizer.lr to lr."""
    keys = list(keys)
    ends = {key: [".".join(key.split(".")[-n:]) for n in range(1, key.count(".") + 2)] for key in keys}
    counts = Counter(end for each in ends.values() for end in each)
    return {key: next((end for end in ends[key] if counts[end] == 1), key) for key in keys}


def build_column(name: str) -> Column:
    """Build a column of a table. Figures stay on one line; keys and their values are broken where there is no room."""
    return Column(Text(name), overflow="fold", no_wrap=name in UNBROKEN or "/" in name)


def print_rows(rows: list[dict[str, Any]]) -> None:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "folder"]
    short = shorten_keys(names)
    table = Table(*(build_column(short[name]) for name in names))
    for row in rows:
        table.add_row(*(Text(format_value(row.get(name))) for name in names))
    Console(markup=False).print(table)
