"""Learning-rate schedules, counted in optimizer steps: a factor on each group's learning rate."""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def warmup_length(num_steps: int, warmup_ratio: float | None, warmup_steps: int | None) -> int:
    """Steps of linear warm-up, from exactly one of a ratio of `num_steps` and a count of steps.

    Raises ValueError when both or none is given, or when the warm-up is as long as the run.
    """
    if (warmup_ratio is None) == (warmup_steps is None):
        raise ValueError("exactly one of warmup_ratio and warmup_steps must be given; set the other to null")
    steps = warmup_steps if warmup_steps is not None else round((warmup_ratio or 0.0) * num_steps)
    if steps < 0:
        raise ValueError(f"a warm-up of {steps} steps is negative")
    if steps >= num_steps:
        raise ValueError(f"a warm-up of {steps} steps is as long as the run of {num_steps} steps; shorten the warm-up")
    return steps


def cosine(num_steps: int, *, warmup_ratio: float | None, warmup_steps: int | None, final_ratio: float) -> Schedule:
    """Linear warm-up, then half a cosine from 1 to `final_ratio` (Loshchilov & Hutter, 2017, arXiv:1608.03983, eq. 5).

    Step s, from 0, gives the factor of the (s+1)-th update: the first is above 0, and the last is near `final_ratio`.
    """
    if not 0 <= final_ratio <= 1:
        raise ValueError(f"final_ratio {final_ratio} is not between 0 and 1")
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        progress = min((step - warmup) / (num_steps - warmup), 1.0)
        return final_ratio + (1 - final_ratio) * 0.5 * (1 + math.cos(math.pi * progress))

    return factor


def constant(num_steps: int, *, warmup_ratio: float | None, warmup_steps: int | None) -> Schedule:
    """Linear warm-up, then 1."""
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)

    def factor(step: int) -> float:
        return min((step + 1) / (warmup + 1), 1.0)

    return factor
