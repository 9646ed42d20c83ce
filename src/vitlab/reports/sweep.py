"""Show a sweep's jobs as one table, best first, and the means over its seeds."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_csv
from vitlab.monitors import better
from vitlab.reports.seeds import COLUMNS, write_seed_table

LONGEST_NUMBER = 8  # letters of one that is shown as it is


def write_tables(sweep: Path, outcomes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write results.csv and seeds.csv into a sweep's folder, from the outcomes of its jobs; return their rows, jobs
    best first."""
    return write_table(sweep, outcomes), write_seed_table(sweep, outcomes)


def print_tables(sweep: Path, rows: list[dict[str, Any]], seeds: list[dict[str, Any]]) -> None:
    print(f"\n{len(rows)} job(s) of this sweep, best first, in {sweep / 'results.csv'}")
    print_rows(telling(rows, {*list(rows[0])[:1], "seconds", "status"}) if rows else [])
    if seeds:
        print(f"\nmeans over seeds and their 95 % intervals, in {sweep / 'seeds.csv'}")
        print_rows(telling([row for row in seeds if row["metric"].endswith(("/acc1", "/map"))] or seeds))


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
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "folder"]
    table = Table(*columns)
    for row in rows:
        values = [row.get(name) for name in columns]
        table.add_row(*map(shown, values))
    Console(markup=False).print(table)
