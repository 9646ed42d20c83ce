import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LambdaLR

from vitlab.optim import constant, cosine, linear, rsqrt, warmup_stable_decay

OPTIONS = {
    constant: {},
    cosine: {"final_ratio": 0.0},
    linear: {"final_ratio": 0.0},
    rsqrt: {"timescale": 100, "cooldown_ratio": None, "cooldown_steps": 0, "final_ratio": 0.0},
    warmup_stable_decay: {"decay_ratio": None, "decay_steps": 0, "decay_shape": "linear", "final_ratio": 0.0},
}
ENDING = {rsqrt: "cooldown", warmup_stable_decay: "decay"}
FALLING = [cosine, linear, *ENDING]

every = pytest.mark.parametrize("schedule", OPTIONS)
falling = pytest.mark.parametrize("schedule", FALLING)
ending = pytest.mark.parametrize("schedule", ENDING)


@st.composite
def runs(draw):
    """A number of steps, a shorter warm-up, and an ending of one step or more after it."""
    num_steps = draw(st.integers(1, 300))
    warmup = draw(st.integers(0, num_steps - 1))
    return num_steps, warmup, draw(st.integers(1, num_steps - warmup))


def build(schedule, num_steps, warmup_ratio=None, warmup_steps=None, end=None, **options):
    """`end`: steps of the last phase, where there is one."""
    if end is not None and schedule in ENDING:
        options[f"{ENDING[schedule]}_steps"] = end
    return schedule(num_steps, warmup_ratio=warmup_ratio, warmup_steps=warmup_steps, **OPTIONS[schedule] | options)


@every
@given(run=runs())
def test_warmup_rises_in_equal_steps_from_above_0_to_a_peak_of_1(schedule, run):
    num_steps, warmup, _ = run
    factor = build(schedule, num_steps, warmup_steps=warmup)
    height = 1 / (warmup + 1)
    assert [factor(step) for step in range(warmup + 1)] == pytest.approx([height * (s + 1) for s in range(warmup + 1)])
    assert factor(warmup) == 1


@falling
@given(run=runs(), final_ratio=st.floats(0, 1), shape=st.sampled_from(["linear", "1-sqrt"]))
def test_it_falls_from_the_peak_to_its_final_ratio_and_stays(schedule, run, final_ratio, shape):
    num_steps, warmup, end = run
    options = {"decay_shape": shape} if schedule is warmup_stable_decay else {}
    if schedule is rsqrt:
        options["timescale"] = 10**9  # so long that any final ratio but 1 lies below
        final_ratio = min(final_ratio, 0.999)
    factor = build(schedule, num_steps, warmup_steps=warmup, end=end, final_ratio=final_ratio, **options)
    factors = [factor(step) for step in range(warmup, num_steps + 10)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(factors))
    assert factors[-10:] == pytest.approx([final_ratio] * 10)
    assert num_steps - warmup == 1 or end == 1 or final_ratio > 0.99 or factor(num_steps - 1) > final_ratio


def test_cosine_is_half_way_down_half_way_through():
    factor = build(cosine, 110, warmup_steps=10, final_ratio=0.2)
    assert factor(60) == pytest.approx(0.6)
    assert factor(35) == pytest.approx(0.2 + 0.8 * (1 + 0.5**0.5) / 2)


def test_linear_is_a_straight_line():
    factor = build(linear, 110, warmup_steps=10, final_ratio=0.2)
    assert [factor(step) for step in (10, 35, 60, 85, 110)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])


@given(runs())
def test_constant_stays_at_the_peak(run):
    num_steps, warmup, _ = run
    factor = build(constant, num_steps, warmup_steps=warmup)
    assert {factor(step) for step in range(warmup, num_steps + 10)} == {1.0}


@given(runs(), st.integers(1, 10_000))
def test_rsqrt_is_its_authors_formula_after_the_warmup(run, timescale):
    """The root and the cooldown multiplied, which is the same as ours when nothing is left at the end."""
    num_steps, warmup, end = run
    factor = build(rsqrt, num_steps, warmup_steps=warmup, end=end, timescale=timescale)
    for step in range(warmup, num_steps):
        root = 1 / math.sqrt(1 + (step - warmup) / timescale)
        assert factor(step) == pytest.approx(root * min(1.0, (num_steps - step) / end))


def test_rsqrt_is_down_to_one_over_root_two_after_its_timescale():
    factor = build(rsqrt, 1000, warmup_steps=50, timescale=100)
    assert [factor(step) for step in (150, 350)] == pytest.approx([0.5**0.5, 0.5])


@ending
@given(run=runs(), longer=st.integers(0, 100))
def test_the_length_of_the_run_shapes_the_ending_alone(schedule, run, longer):
    """What is before it can be shared by runs of several lengths."""
    num_steps, warmup, end = run
    short, long = (build(schedule, n, warmup_steps=warmup, end=end) for n in (num_steps, num_steps + longer))
    assert [short(step) for step in range(num_steps - end)] == [long(step) for step in range(num_steps - end)]
    if schedule is warmup_stable_decay:
        assert {short(step) for step in range(warmup, num_steps - end + 1)} == {1.0}


@pytest.mark.parametrize(("shape", "half_way"), [("linear", 0.55), ("1-sqrt", 0.1 + 0.9 * (1 - 0.5**0.5))])
def test_the_decay_of_wsd_has_its_shape(shape, half_way):
    factor = build(warmup_stable_decay, 100, warmup_steps=10, end=40, decay_shape=shape, final_ratio=0.1)
    assert [factor(step) for step in (60, 80, 100)] == pytest.approx([1, half_way, 0.1])


@every
@pytest.mark.parametrize(("ratio", "steps"), [(0.0, 0), (0.05, 10), (0.5, 100)])
def test_a_ratio_is_of_all_steps(schedule, ratio, steps):
    by_ratio, by_steps = build(schedule, 200, warmup_ratio=ratio), build(schedule, 200, warmup_steps=steps)
    assert [by_ratio(step) for step in range(200)] == [by_steps(step) for step in range(200)]


@ending
def test_the_ratio_of_an_ending_is_of_all_steps(schedule):
    name = ENDING[schedule]
    by_ratio = build(schedule, 200, warmup_steps=50, **{f"{name}_ratio": 0.2, f"{name}_steps": None})
    by_steps = build(schedule, 200, warmup_steps=50, end=40)
    assert [by_ratio(step) for step in range(200)] == [by_steps(step) for step in range(200)]
    assert by_steps(199) < 0.03


@every
@pytest.mark.parametrize(
    "warmup", [{}, {"warmup_ratio": 0.1, "warmup_steps": 3}, {"warmup_ratio": 0.0, "warmup_steps": 0}]
)
def test_warmup_is_given_by_exactly_one_of_ratio_and_steps(schedule, warmup):
    with pytest.raises(ValueError, match="exactly one of warmup_ratio and warmup_steps"):
        build(schedule, 10, **warmup)


@every
@pytest.mark.parametrize("warmup", [{"warmup_steps": 10}, {"warmup_steps": 11}, {"warmup_ratio": 1.0}])
def test_a_warmup_as_long_as_the_run_is_refused(schedule, warmup):
    with pytest.raises(ValueError, match="not shorter than the run of 10 steps"):
        build(schedule, 10, **warmup)


@ending
def test_an_ending_that_does_not_fit_is_refused(schedule):
    name = ENDING[schedule]
    with pytest.raises(ValueError, match=f"exactly one of {name}_ratio and {name}_steps"):
        build(schedule, 10, warmup_steps=0, **{f"{name}_ratio": 0.1})
    with pytest.raises(ValueError, match=f"warm-up of 4 steps and a {name} of 7 do not fit into the run of 10"):
        build(schedule, 10, warmup_steps=4, end=7)
    build(schedule, 10, warmup_steps=4, end=6)


def test_options_without_meaning_are_refused():
    with pytest.raises(ValueError, match=r"final_ratio 0.6 is above 0.5, where the cooldown begins"):
        build(rsqrt, 400, warmup_steps=50, end=50, final_ratio=0.6)
    with pytest.raises(ValueError, match="'cosine' is not one of: linear, 1-sqrt"):
        build(warmup_stable_decay, 10, warmup_steps=0, decay_shape="cosine")


@every
def test_under_torch_every_group_follows_the_schedule(schedule):
    factor = build(schedule, 12, warmup_ratio=0.25, end=4)
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.01)]
    optimizer = torch.optim.SGD(groups)
    scheduler = LambdaLR(optimizer, factor)
    for step in range(12):
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.1 * factor(step), 0.01 * factor(step)]
        )
        optimizer.step()
        scheduler.step()
