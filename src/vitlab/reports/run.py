"""Read the result and metrics of a run."""

import csv
import json
import math
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.errors import CheckpointError

RESULT = "result.json"


def read_result(folder: Path) -> dict[str, Any] | None:
    """Read the result of a run: score, steps, seconds and test metrics, NaN where the file has null. None if the run
    has not succeeded. Raises CheckpointError for a damaged file."""
    path = folder / RESULT
    try:
        result: dict[str, Any] = json.loads(path.read_bytes())
        if not {"score", "test"} & result.keys():
            raise KeyError("score")
        if result.get("score") is not None:
            result["score"] = float(result["score"])
        for part in {"test", "last"} & result.keys():
            result[part] = {name: math.nan if value is None else float(value) for name, value in result[part].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: remove it, and resume={folder} rewrites it") from error
    return result


def read_end(folder: Path) -> int | None:
    """Read the step at which a run has ended, -1 if its result does not say; None if it has not. Raises
    CheckpointError."""
    result = read_result(folder)
    return None if result is None else int(result.get("steps", -1))


def read_last_step(folder: Path) -> float:
    """Read the step at which a run's training ends; infinity if provenance.json does not say."""
    with suppress(FileNotFoundError, ValueError, TypeError, LookupError):  # damaged, or from an earlier version
        return float(json.loads((folder / "provenance.json").read_bytes())[-1]["to_step"])
    return math.inf


def read_set_keys(folder: Path) -> set[str]:
    """Read the keys that the user has set for a run, from the commands in provenance.json; none if it does not say."""
    with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
        starts = json.loads((folder / "provenance.json").read_bytes())
        words = [word for start in starts for word in shlex.split(start["command"])]
        return {word.lstrip("+~").partition("=")[0] for word in words if "=" in word and not word.startswith("-")}
    return set()


def read_metric(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Read the steps and values of a metric of a run, which may still be running."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))  # the last one may be half written
    return [(int(row["step"]), float(row[metric])) for row in rows if row.get(metric)]
