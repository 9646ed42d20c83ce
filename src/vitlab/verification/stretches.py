"""Stretches of a run between kept states: which are computed again, and how what comes out is compared."""

import itertools
import math
import random
from typing import Any, NamedTuple

from vitlab.checkpoints.differences import find_differences, list_tensors
from vitlab.errors import CheckpointError
from vitlab.verification.recorded import RecordedRun

PLAIN = ("run", "callbacks")  # parts of a state that may hold times


class Stretch(NamedTuple):
    """The steps after a kept state (0: the beginning), up to the next one."""

    first: int
    last: int


def list_stretches(run: RecordedRun) -> list[Stretch]:
    """List the stretches of a run between its kept states. Raises CheckpointError where there is none."""
    begun = min((line["from_step"] for line in run.lines if "from_step" in line), default=0)
    steps = [0] * (begun == 0) + [step for step in run.states if step in run.saved]
    found = [Stretch(a, b) for a, b in itertools.pairwise(steps)]
    if not found:
        raise CheckpointError(
            f"{run.folder} has kept too few states to compute anything again; train with "
            "callbacks.latest_state.keep_states=8"
        )
    return found


def choose_stretches(stretches: list[Stretch], count: int, seed: int | None) -> list[Stretch]:
    """Choose so many stretches at random, which nobody can foresee without a seed."""
    chance: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
    return sorted(chance.sample(stretches, min(count, len(stretches))))


def compute_miss(total: int, checked: int, wrong: int) -> float:
    """Return the probability that `checked` of `total` stretches, chosen at random, are none of the `wrong` ones."""
    return math.comb(total - wrong, checked) / math.comb(total, checked)


class Difference(NamedTuple):
    """Names of the tensors in which two states differ, and the distance of their weights relative to their norm."""

    names: list[str]
    distance: float


def compare_states(recorded: dict[str, Any], computed: dict[str, Any]) -> Difference:
    """Compare every tensor of two states bit for bit."""
    then, now = (
        list_tensors({key: value for key, value in state.items() if key not in PLAIN}) for state in (recorded, computed)
    )
    names = find_differences(then, now)
    weights = [name for name in then if name.startswith("state_dict.") and then[name].is_floating_point()]
    norm = math.sqrt(sum(float(then[name].double().square().sum()) for name in weights))
    apart = [now[name].double() - then[name].double() for name in weights if name in now]
    distance = math.sqrt(sum(float(part.square().sum()) for part in apart)) / max(norm, 1e-30)
    return Difference(names, distance)
