"""Plan trials and the final run of a fit from measured speeds, so that all ends in time."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from vitlab.trials.outcome import Outcome

TRIED = 0.3  # share of the time left that goes to trials
PROBE = 2.0  # seconds in which the speed of a candidate's steps is measured
VALIDATED = 0.08  # share of the final run that its validations take at most
MOST_VALIDATIONS = 20
CALIBRATED = 10_000  # training images at most that "none of these" is learned from: callbacks/calibration.py
FORWARD = 0.5  # of a training step: an evaluation step, at most
SPARE = 0.02  # share of the time that nothing is planned for
LEAST_STEPS = 10


class Sizes(NamedTuple):
    """Images of each split, and the seconds that reading one of them takes."""

    train: int
    val: int
    test: int
    reading: float


class Times(NamedTuple):
    """How many candidates are tried, for how many seconds of steps each, and then two of them for how many more; 0: no
    second round."""

    candidates: int
    first: float
    second: float


@dataclass(frozen=True)
class Plan:
    """The final run: its optimizer steps, epochs between validations, and the seconds it is expected to take."""

    steps: int
    validate_every: int
    seconds: float


def plan_rounds(left: float, start: float, candidates: int) -> Times:
    """Divide the time for trials, of which each costs `start` seconds beside its steps, among at most that many."""
    time = TRIED * left
    each = PROBE + 2 * start  # of a probe and the start of a trial
    count = max(1, min(candidates, int(time / (2 * each))))
    first = time / count - each
    shorter = time / 2 / count - each
    if count < 2 or shorter < each or time / 4 < 2 * start:  # trials of a few steps say little
        return Times(count, max(first, PROBE), 0.0)
    return Times(count, shorter, time / 4 - start)


def count_steps(seconds: float, step_seconds: float) -> int:
    """Count the steps that fit into so many seconds, at least a few."""
    return max(LEAST_STEPS, int(seconds / step_seconds))


def estimate_evaluation(step_seconds: float, batch_size: int, reading: float) -> float:
    """Estimate the seconds that the evaluation of an image takes at most."""
    return FORWARD * step_seconds / batch_size + reading


def plan_final(trial: Outcome, sizes: Sizes, left: float, reserve: float) -> Plan:
    """Plan the run that ends within `left` seconds, of which `reserve` are for what comes after the test."""
    slowest = estimate_evaluation(trial.step_seconds, trial.batch_size, sizes.reading)
    image = min(slowest, trial.validation_seconds / sizes.val)  # seconds to evaluate an image
    validation = image * sizes.val
    test = image * (sizes.val + min(sizes.train, CALIBRATED) + sizes.test)
    training = left * (1 - SPARE) - trial.other_seconds - test - reserve
    each_epoch = max(sizes.train // trial.batch_size, 1)  # steps
    epochs = max(training, 0.0) / (trial.step_seconds * each_epoch)
    most = max(1, min(MOST_VALIDATIONS, int(VALIDATED * max(training, 0.0) / max(validation, 1e-3))))
    every = max(1, math.ceil(epochs / most))
    validations = math.floor(epochs / every)
    steps = count_steps(training - validations * validation, trial.step_seconds)
    return Plan(steps, every, left - training + steps * trial.step_seconds + validations * validation)
