"""Read the calibration of a finished run."""

from pathlib import Path
from typing import Any

from vitlab.reports.run import read_result


def read_calibration(folder: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Read what was fitted to the weights of a checkpoint; {} where nothing was, or to others."""
    result = read_result(folder) or {}
    own = "best_step" in result and result["best_step"] == checkpoint.get("global_step")
    return (result.get("calibration") or {}) if own else {}
