from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LambdaLR

from vitlab.optim import constant, cosine


@st.composite
def runs(draw):
    """A number of steps, and a shorter warm-up."""
    num_steps = draw(st.integers(1, 300))
    return num_steps, draw(st.integers(0, num_steps - 1))


def build(schedule, num_steps, warmup_ratio=None, warmup_steps=None, **options):
    options = {"final_ratio": 0.0} | options if schedule is cosine else options
    return schedule(num_steps, warmup_ratio=warmup_ratio, warmup_steps=warmup_steps, **options)


both = pytest.mark.parametrize("schedule", [constant, cosine])


@both
@given(run=runs())
def test_warmup_rises_in_equal_steps_from_above_0_to_a_peak_of_1(schedule, run):
    num_steps, warmup = run
    factor = build(schedule, num_steps, warmup_steps=warmup)
    height = 1 / (warmup + 1)
    assert [factor(step) for step in range(warmup + 1)] == pytest.approx([height * (s + 1) for s in range(warmup + 1)])
    assert factor(warmup) == 1


@given(runs(), st.floats(0, 1))
def test_cosine_falls_from_the_peak_to_its_final_ratio_and_stays(run, final_ratio):
    num_steps, warmup = run
    factor = build(cosine, num_steps, warmup_steps=warmup, final_ratio=final_ratio)
    factors = [factor(step) for step in range(warmup, num_steps + 10)]
    assert all(later <= earlier for earlier, later in pairwise(factors))
    assert factors[-10:] == pytest.approx([final_ratio] * 10)
    assert num_steps - warmup == 1 or final_ratio > 0.999 or factor(num_steps - 1) > final_ratio


def test_cosine_is_half_way_down_half_way_through():
    factor = build(cosine, 110, warmup_steps=10, final_ratio=0.2)
    assert factor(60) == pytest.approx(0.6)
    assert factor(35) == pytest.approx(0.2 + 0.8 * (1 + 0.5**0.5) / 2)


@given(runs())
def test_constant_stays_at_the_peak(run):
    num_steps, warmup = run
    factor = build(constant, num_steps, warmup_steps=warmup)
    assert {factor(step) for step in range(warmup, num_steps + 10)} == {1.0}


@both
@pytest.mark.parametrize(("ratio", "steps"), [(0.0, 0), (0.05, 10), (0.5, 100)])
def test_a_ratio_is_of_all_steps(schedule, ratio, steps):
    by_ratio, by_steps = build(schedule, 200, warmup_ratio=ratio), build(schedule, 200, warmup_steps=steps)
    assert [by_ratio(step) for step in range(200)] == [by_steps(step) for step in range(200)]


@both
@pytest.mark.parametrize(
    "warmup", [{}, {"warmup_ratio": 0.1, "warmup_steps": 3}, {"warmup_ratio": 0.0, "warmup_steps": 0}]
)
def test_warmup_is_given_by_exactly_one_of_ratio_and_steps(schedule, warmup):
    with pytest.raises(ValueError, match="exactly one of warmup_ratio and warmup_steps"):
        build(schedule, 10, **warmup)


@both
@pytest.mark.parametrize("warmup", [{"warmup_steps": 10}, {"warmup_steps": 11}, {"warmup_ratio": 1.0}])
def test_a_warmup_as_long_as_the_run_is_refused(schedule, warmup):
    with pytest.raises(ValueError, match="as long as the run of 10 steps"):
        build(schedule, 10, **warmup)


@both
def test_under_torch_every_group_follows_the_schedule(schedule):
    factor = build(schedule, 12, warmup_ratio=0.25)
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.01)]
    optimizer = torch.optim.SGD(groups)
    scheduler = LambdaLR(optimizer, factor)
    for step in range(12):
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.1 * factor(step), 0.01 * factor(step)]
        )
        optimizer.step()
        scheduler.step()
