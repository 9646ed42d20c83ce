"""What a trial has shown, and which trial is the best.

Accuracies are compared first. Where the difference is within a standard error of the best one, the loss decides, which
differs less from one draw of the validation images to another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.reports.run import read_result


@dataclass(frozen=True)
class Outcome:
    """A finished trial: its candidate's name, optimizer steps, images per step, seconds of the whole run and of a step,
    accuracy and loss on validation, and seconds of steps with validation. `failed` says why nothing was shown."""

    name: str
    steps: int
    batch_size: int
    seconds: float
    step_seconds: float = math.inf
    accuracy: float = 0.0
    loss: float = math.inf
    fit_seconds: float = math.inf
    failed: str = ""

    @property
    def other_seconds(self) -> float:
        """Count the seconds that were not spent on steps: the start, a validation, writing."""
        return max(self.seconds - self.steps * self.step_seconds, 0.0)

    @property
    def validation_seconds(self) -> float:
        """Count the seconds of its validation, with what else the training did beside its steps."""
        return max(self.fit_seconds - self.steps * self.step_seconds, 0.0)


def read_outcome(name: str, folder: Path, steps: int, batch_size: int, seconds: float) -> Outcome:
    """Read how a trial in `folder` has ended."""
    result: dict[str, Any] = read_result(folder) or {}
    last, speed = result.get("last", {}), result.get("images_per_second")
    if "val/acc1" not in last or not speed:
        return Outcome(name, steps, batch_size, seconds, failed="it was not validated")
    shown = last["val/acc1"], last["val/loss"]
    return Outcome(name, steps, batch_size, seconds, batch_size / speed, *shown, result["seconds"])


def choose(outcomes: Sequence[Outcome], num_images: int) -> tuple[Outcome, str]:
    """Return the best trial, validated on so many images, and why it is. At least one has not failed."""
    ended = [one for one in outcomes if not one.failed]
    top = max(ended, key=lambda one: one.accuracy)
    error = math.sqrt(max(top.accuracy * (1 - top.accuracy), 1 / num_images) / num_images)
    alike = [one for one in ended if one.accuracy >= top.accuracy - error]
    best = min(alike, key=lambda one: one.loss)
    if len(ended) == 1:
        return best, f"{best.name}: the only one that was tried to the end"
    if len(alike) == 1:
        return best, f"{best.name}: val/acc1 {best.accuracy:.2%} is the highest by more than its standard error"
    others = ", ".join(one.name for one in alike if one is not best)
    return best, (
        f"{best.name}: val/acc1 {best.accuracy:.2%} is within a standard error ({error:.2%} of {num_images:,} images) "
        f"of {others}, and val/loss {best.loss:.4f} is the lowest of them"
    )
