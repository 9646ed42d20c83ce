"""Tests of differences between runs: against other libraries, and by simulated studies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from vitlab.reports.differences import (
    bootstrap_interval,
    compute_least_difference,
    holm,
    least_p,
    mcnemar_p,
    sign_flip_p,
)
from vitlab.reports.intervals import half_width


@pytest.mark.parametrize("seeds", [3, 5, 6, 9])
def test_the_sign_flip_test_is_scipys(seeds):
    values = np.random.default_rng(seeds).normal(0.3, 1, seeds)
    theirs = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(values) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("seeds", "least"), [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_what_a_number_of_seeds_can_show(seeds, least):
    assert least_p(seeds) == least
    assert sign_flip_p(np.linspace(0.1, 0.3, seeds)) == least


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_a_p_value_is_symmetric_and_at_least_the_least(values):
    p = sign_flip_p(values)
    assert p == sign_flip_p([-value for value in values])
    assert least_p(len(values)) <= p <= 1


def test_equal_recipes_differ_by_nothing():
    assert sign_flip_p([0.0] * 6) == 1
    assert bootstrap_interval(np.zeros((3, 50))) == (0, 0)


@pytest.mark.parametrize(("only_a", "only_b"), [(5, 12), (0, 6), (3, 3), (0, 1)])
def test_mcnemar_is_that_of_statsmodels(only_a, only_b):
    from statsmodels.stats.contingency_tables import mcnemar

    assert mcnemar_p(only_a, only_b) == pytest.approx(mcnemar([[10, only_a], [only_b, 10]], exact=True).pvalue)


def test_models_with_the_same_answers_do_not_differ():
    assert mcnemar_p(0, 0) == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_is_that_of_statsmodels(values):
    from statsmodels.stats.multitest import multipletests

    assert holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_the_least_difference_shown_is_half_of_the_interval():
    values = [0.01, 0.03, 0.02]
    assert compute_least_difference(values) == half_width(values)


def simulated(rng, seeds, samples, seed_deviation, flips=0.1):
    """Differences (S, N) of two recipes that are equal on the whole: of each seed, of each sample, of both."""
    seed = rng.normal(0, seed_deviation, (seeds, 1))
    sample = rng.normal(0, 0.05, (1, samples))
    return seed + sample + rng.choice([-1, 0, 1], (seeds, samples), p=[flips / 2, 1 - flips, flips / 2])


@pytest.mark.slow
def test_1000_null_studies_give_5_of_100_false_alarms():
    """With 12 seeds the test's possible p-values lie close enough to 0.05; with six it gives 3 of 100."""
    rng = np.random.default_rng(0)
    alarms = {seeds: np.mean([sign_flip_p(rng.normal(size=seeds)) <= 0.05 for _ in range(1000)]) for seeds in (6, 12)}
    assert 0.036 <= alarms[12] <= 0.064
    assert 0.017 <= alarms[6] <= 0.046


@pytest.mark.slow
def test_the_bootstrap_covers_equal_recipes():
    """At least in 93 of 100 studies; it errs on the wide side where seeds differ little."""
    rng = np.random.default_rng(0)
    found = [bootstrap_interval(simulated(rng, 6, 300, 0.01), resamples=400) for _ in range(300)]
    assert np.mean([low <= 0 <= high for low, high in found]) >= 0.93
