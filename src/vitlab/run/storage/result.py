"""Collect the result of a run, for result.json and for its user."""

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from vitlab.tasks.task import is_below_all


@dataclass(frozen=True)
class Result:
    """`score` is the best value of the monitored metric, None where nothing was kept; `test` are the best model's
    metrics, `last` those of the last validation. `calibration` is the temperature of its probabilities, what was
    measured on validation before and after, and the share of test images that are of none of the classes. `seconds` are
    those of all starts, `images_per_second` is the speed of the last one, and `partial` names the settings that leave
    samples out."""

    score: float | None
    best_step: int
    steps: int
    steps_of_this_start: int
    test: dict[str, float]
    last: dict[str, float]
    calibration: dict[str, Any] | None
    seconds: float
    images_per_second: float | None
    skipped: dict[str, int]
    partial: list[str]

    def facts(self, things: str) -> dict[str, str]:
        """Give lines to print below the metrics, of a run on such `things`."""
        now = f", {self.steps_of_this_start:,} of them in this start" * (self.steps_of_this_start < self.steps)
        facts = {"time": f"{self.seconds:.0f} s for {self.steps:,} steps{now}, best at step {self.best_step:,}"}
        if self.images_per_second:
            facts["speed"] = f"{self.images_per_second:,.0f} {things}/s in training"
        if self.calibration:
            before, after = (self.calibration[time]["ece"] for time in ("before", "after"))
            told = f"temperature {self.calibration['temperature']:.3f}, fitted on validation"
            facts["calibrated"] = f"{told}: calibration error {before:.2%} before, {after:.2%} after"
            if after > before:
                facts["calibrated"] += ": higher, because the temperature is fitted to nll, not to this error"
        if self.skipped:
            facts["skipped"] = ", ".join(f"{n} unreadable images in {split}" for split, n in self.skipped.items())
        if self.partial:
            facts["partial"] = f"not every sample was used: {', '.join(self.partial)}"
        return facts


def partial_use(trainer: pl.Trainer) -> list[str]:
    """List the settings by which this trainer leaves samples out on purpose."""
    if trainer.fast_dev_run:
        return ["fast_dev_run"]
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test")]
    return [limit for limit in limits if is_below_all(getattr(trainer, limit))]
