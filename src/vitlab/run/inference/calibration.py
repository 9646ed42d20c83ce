"""Read the calibration of a finished run."""

from pathlib import Path
from typing import Any

from vitlab.reports.run import read_result


def read_temperature(folder: Path, checkpoint: dict[str, Any]) -> float | None:
    """Read the temperature that was fitted to the weights of a checkpoint; None where none was, or to others."""
    result = read_result(folder)
    calibration = (result or {}).get("calibration")
    if not result or not calibration or result.get("best_step") != checkpoint.get("global_step"):
        return None
    return float(calibration["temperature"])
