"""Learning-rate schedules, counted in optimizer steps: a factor on each group's learning rate.

Step s, from 0, gives the factor of the (s+1)-th update. A warm-up starts above 0, and what falls to `final_ratio` would
reach it at step `num_steps`, just after the last update; from there on it stays.
"""

import math
from collections.abc import Callable

from vitlab.ranges import Count, Natural, Share

Schedule = Callable[[int], float]
DECAYS: dict[str, Callable[[float], float]] = {  # progress, 0 to 1, -> 1 to 0
    "linear": lambda progress: 1 - progress,
    "1-sqrt": lambda progress: 1 - math.sqrt(progress),
}


def cosine(
    num_steps: Count, *, warmup_ratio: Share | None, warmup_steps: Natural | None, final_ratio: Share
) -> Schedule:
    """Warm up linearly, then fall along half a cosine to `final_ratio` (Loshchilov & Hutter, 2017, arXiv:1608.03983,
    eq. 5)."""
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)

    def fall(step: int) -> float:
        remaining = 0.5 * (1 + math.cos(math.pi * progress(step, warmup, num_steps)))
        return final_ratio + (1 - final_ratio) * remaining

    return prepend_warmup(warmup, fall)


def linear(
    num_steps: Count, *, warmup_ratio: Share | None, warmup_steps: Natural | None, final_ratio: Share
) -> Schedule:
    """Warm up linearly, then fall along a straight line to `final_ratio` (Dosovitskiy et al., 2021, arXiv:2010.11929,
    4.1)."""
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)
    return prepend_warmup(warmup, lambda step: 1 - (1 - final_ratio) * progress(step, warmup, num_steps))


def constant(num_steps: Count, *, warmup_ratio: Share | None, warmup_steps: Natural | None) -> Schedule:
    """Warm up linearly, then stay at 1."""
    return prepend_warmup(warmup_length(num_steps, warmup_ratio, warmup_steps), lambda step: 1.0)


def rsqrt(
    num_steps: Count,
    *,
    warmup_ratio: Share | None,
    warmup_steps: Natural | None,
    timescale: Count,
    cooldown_ratio: Share | None,
    cooldown_steps: Natural | None,
    final_ratio: Share,
) -> Schedule:
    """Warm up linearly, then fall as 1/√(1 + t/timescale), t steps after the warm-up, and at the end cool down linearly
    to `final_ratio` (Zhai et al., 2022, arXiv:2106.04560, section 3.5, in the form of the authors' code).

    The end of the run shapes the cooldown alone, so a run can be made longer from a state before it. Raises ValueError
    where the reciprocal root has fallen below `final_ratio` when the cooldown begins.
    """
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)
    cooldown = ending_length("cooldown", num_steps, cooldown_ratio, cooldown_steps, warmup)

    def root(step: int) -> float:
        return 1 / math.sqrt(1 + (min(step, num_steps) - warmup) / timescale)

    if final_ratio > root(num_steps - cooldown):
        raise ValueError(
            f"final_ratio {final_ratio} is above {root(num_steps - cooldown):.3g}, where the cooldown begins; give a "
            "lower final_ratio or a longer timescale"
        )

    def fall(step: int) -> float:
        return final_ratio + (root(step) - final_ratio) * (1 - progress(step, num_steps - cooldown, num_steps))

    return prepend_warmup(warmup, fall)


def warmup_stable_decay(
    num_steps: Count,
    *,
    warmup_ratio: Share | None,
    warmup_steps: Natural | None,
    decay_ratio: Share | None,
    decay_steps: Natural | None,
    decay_shape: str,
    final_ratio: Share,
) -> Schedule:
    """Warm up linearly, stay at 1, and at the end decay to `final_ratio` (Hu et al., 2024, arXiv:2404.06395, section
    4).

    `decay_shape` is linear or 1-sqrt, which is steep at first (Hägele et al., 2024, arXiv:2405.18392, section 3).
    """
    warmup = warmup_length(num_steps, warmup_ratio, warmup_steps)
    decay = ending_length("decay", num_steps, decay_ratio, decay_steps, warmup)
    if decay_shape not in DECAYS:
        raise ValueError(f"decay_shape '{decay_shape}' is not one of: {', '.join(DECAYS)}")
    shape = DECAYS[decay_shape]

    def fall(step: int) -> float:
        return final_ratio + (1 - final_ratio) * shape(progress(step, num_steps - decay, num_steps))

    return prepend_warmup(warmup, fall)


# -- what they share


def prepend_warmup(warmup: int, rest: Schedule) -> Schedule:
    """Warm up in `warmup` equal steps, then follow `rest`."""
    return lambda step: (step + 1) / (warmup + 1) if step < warmup else rest(step)


def progress(step: int, start: int, end: int) -> float:
    """Rise in a straight line from 0 at `start` to 1 at `end`, and stay; 0 throughout when nothing lies between."""
    return min(max(step - start, 0) / (end - start), 1.0) if end > start else 0.0


def phase_length(phase: str, num_steps: int, ratio: float | None, steps: int | None) -> int:
    """Count the steps of a phase, given as either a ratio of `num_steps` or a count; raise ValueError for both or
    neither."""
    if (ratio is None) == (steps is None):
        raise ValueError(f"exactly one of {phase}_ratio and {phase}_steps must be given; set the other to null")
    return steps if steps is not None else round((ratio or 0.0) * num_steps)


def warmup_length(num_steps: int, ratio: float | None, steps: int | None) -> int:
    """Count the steps of the warm-up. Raises ValueError when it is as long as the run."""
    length = phase_length("warmup", num_steps, ratio, steps)
    if length >= num_steps:
        raise ValueError(
            f"a warm-up of {length} steps is not shorter than the run of {num_steps} steps; shorten the warm-up"
        )
    return length


def ending_length(phase: str, num_steps: int, ratio: float | None, steps: int | None, warmup: int) -> int:
    """Count the steps of the last phase. Raises ValueError when it would begin within the warm-up."""
    length = phase_length(phase, num_steps, ratio, steps)
    if warmup + length > num_steps:
        raise ValueError(
            f"a warm-up of {warmup} steps and a {phase} of {length} do not fit into the run of {num_steps} steps; "
            f"shorten {phase}_ratio or {phase}_steps"
        )
    return length
