"""The time of a fit, divided: trials, steps, what comes after."""

from dataclasses import replace

import pytest

from vitlab.trials.budget import Budget
from vitlab.trials.outcome import Outcome
from vitlab.trials.plan import LEAST_STEPS, SPARE, Sizes, plan_final, plan_rounds

TRIAL = Outcome("vit_32", steps=100, batch_size=50, seconds=14.0, step_seconds=0.1, accuracy=0.9, loss=0.4)
SIZES = Sizes(train=5000, val=500, test=1000, reading=0.0002)


@pytest.mark.parametrize("left", [60, 300, 3000])
@pytest.mark.parametrize("reserve", [0, 20])
def test_steps_validations_test_and_reserve_fill_the_time(left, reserve):
    plan = plan_final(TRIAL, SIZES, left, reserve)
    image = 0.5 * 0.1 / 50 + 0.0002
    validations = plan.steps // 100 // plan.validate_every  # 100 steps an epoch
    took = 4 + plan.steps * 0.1 + validations * 500 * image + 6500 * image + reserve
    assert took == pytest.approx(left * (1 - SPARE), abs=1.0)
    assert plan.seconds == pytest.approx(left, rel=0.03)


def test_evaluation_is_as_fast_as_the_validation_of_the_trial_was():
    measured = replace(TRIAL, fit_seconds=10.2)  # 0.2 of them for 500 images, below what reading one process needs
    plan = plan_final(measured, SIZES, 300, 0)
    validations = plan.steps // 100 // plan.validate_every
    took = 4 + plan.steps * 0.1 + validations * 0.2 + 6500 * 0.2 / 500
    assert took == pytest.approx(300 * (1 - SPARE), abs=1.0)
    slower = replace(TRIAL, fit_seconds=13.0)  # its validation took longer than any reading and computing would
    assert plan_final(slower, SIZES, 300, 0) == plan_final(TRIAL, SIZES, 300, 0)


def test_validations_take_a_small_share_of_the_time():
    plan = plan_final(TRIAL, SIZES, 600, 0)
    assert 5 <= plan.steps // 100 // plan.validate_every <= 20
    slow = plan_final(TRIAL, SIZES._replace(val=20_000), 600, 0)
    assert slow.validate_every > plan.validate_every


def test_without_time_a_few_steps_are_left_and_the_end_is_late():
    plan = plan_final(TRIAL, SIZES, 5, 20)
    assert plan.steps == LEAST_STEPS
    assert plan.seconds > 20 + 4 + LEAST_STEPS * 0.1


def test_a_slower_trial_gives_fewer_steps():
    slow = Outcome("vit_32", steps=100, batch_size=50, seconds=24.0, step_seconds=0.2)
    assert plan_final(slow, SIZES, 300, 0).steps < 0.6 * plan_final(TRIAL, SIZES, 300, 0).steps


@pytest.mark.parametrize(("left", "start"), [(60, 3), (100, 3), (500, 3), (500, 20), (1100, 3), (1100, 30)])
def test_trials_take_their_share(left, start):
    rounds = plan_rounds(left, start, 4)
    assert 1 <= rounds.candidates <= 4
    took = rounds.candidates * (rounds.first + 2 + 2 * start) + bool(rounds.second) * 2 * (rounds.second + start)
    assert took <= max(0.3 * left + 1, 2 + 2 * start + 2)


def test_more_time_tries_more():
    few, many = plan_rounds(60, 3, 4), plan_rounds(1100, 3, 4)
    assert few.candidates < many.candidates == 4
    assert few.second == 0 < many.second


def test_seconds_of_earlier_starts_count():
    budget = Budget(minutes=1)
    budget.add_before(45)
    assert 14 < budget.left < 15.1
    assert budget.spent > 45
