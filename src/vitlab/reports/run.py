"""Read the results of a run."""

import csv
import json
from pathlib import Path
from typing import Any

RESULT = "result.json"


def result_of(folder: Path) -> dict[str, Any] | None:
    """Read the result in a run's folder: score, steps, seconds, test metrics; None where the run has not ended well."""
    path = folder / RESULT
    return json.loads(path.read_text()) if path.is_file() else None


def history(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read a metric of a run, which may still go on: the steps at which it was measured, and its values."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))  # the last one may be half written
    return [(int(row["step"]), float(row[metric])) for row in rows if row.get(metric)]
