"""Tests of differences between runs: against other libraries, and by simulated studies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, ttest_1samp

from vitlab.reports.differences import (
    count_seeds_needed,
    crossed_interval,
    holm,
    least_p,
    mcnemar_p,
    sign_flip_p,
    student_p,
)
from vitlab.reports.intervals import student_interval


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
    assert crossed_interval(np.zeros((3, 50))) == (0, 0)


@pytest.mark.parametrize(("only_a", "only_b"), [(5, 12), (0, 6), (3, 3), (0, 1)])
def test_mcnemar_is_that_of_statsmodels(only_a, only_b):
    from statsmodels.stats.contingency_tables import mcnemar

    assert mcnemar_p(only_a, only_b) == pytest.approx(mcnemar([[10, only_a], [only_b, 10]], exact=True).pvalue)


def test_models_with_the_same_answers_do_not_differ():
    assert mcnemar_p(0, 0) == 1


@pytest.mark.slow  # statsmodels takes ten seconds to import
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_is_that_of_statsmodels(values):
    from statsmodels.stats.multitest import multipletests

    assert holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_the_t_test_is_scipys_and_takes_no_spread_for_no_knowledge():
    values = [0.01, 0.03, 0.02]
    assert student_p(values) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert student_p([0.1, 0.1]) == 1


@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 6), (2, 7), (3, 7), (4, 8), (6, 8), (45, 11)])
def test_more_comparisons_need_more_seeds(comparisons, seeds):
    assert count_seeds_needed(comparisons) == seeds
    assert max(holm([least_p(seeds)] * comparisons)) <= 0.05 < max(holm([least_p(seeds - 1)] * comparisons))


def test_the_interval_over_one_seed_is_that_of_its_samples():
    values = np.random.default_rng(0).normal(0.3, 1, 50)
    assert crossed_interval([values]) == pytest.approx(student_interval(list(values)), rel=0.02)


def test_the_interval_over_many_samples_is_that_of_the_seeds():
    """Where all samples of a seed tell the same, other samples change nothing."""
    values = np.array([[0.01], [0.05], [0.03], [0.02]])
    assert crossed_interval(values.repeat(40, axis=1)) == pytest.approx(student_interval(list(values[:, 0])))
    assert crossed_interval(values[:2].repeat(40, axis=1)) is None


def simulated(rng, seeds, samples, seed_deviation, flips=0.1):
    """Differences (S, N) of two recipes that are equal on the whole: of each seed, of each sample, of both."""
    seed = rng.normal(0, seed_deviation, (seeds, 1))
    sample = rng.normal(0, 0.05, (1, samples))
    return seed + sample + rng.choice([-1, 0, 1], (seeds, samples), p=[flips / 2, 1 - flips, flips / 2])


STUDIES = 1000
MARGIN = 0.014  # two standard deviations of 5 of 100 among so many
PAIRED = 40  # test samples on which exactly one of two equal models is right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (lambda rng: sign_flip_p(rng.normal(size=6)), 2 / 64),  # the only one of its p-values below 0.05
        (lambda rng: sign_flip_p(rng.normal(size=12)), 0.05),
        (lambda rng: student_p(list(rng.normal(size=3))), 0.05),
        (lambda rng: student_p(list(rng.normal(size=5))), 0.05),
        (lambda rng: mcnemar_p(only := int(rng.binomial(PAIRED, 0.5)), PAIRED - only), 0.0385),  # of 40 samples
    ],
    ids=["sign flip, 6 seeds", "sign flip, 12 seeds", "t, 3 seeds", "t, 5 seeds", "McNemar"],
)
def test_1000_null_studies_give_the_false_alarms_that_each_test_allows(test, expected):
    rng = np.random.default_rng(0)
    alarms = np.mean([test(rng) <= 0.05 for _ in range(STUDIES)])
    print(f"{alarms:.1%} false alarms")
    assert abs(alarms - expected) <= MARGIN
    assert alarms <= 0.05 + MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 5, 6])
def test_1000_null_studies_of_three_recipes_give_at_most_5_of_100_false_alarms(seeds):
    """Of all three comparisons together, after Holm's adjustment."""
    rng, test = np.random.default_rng(0), sign_flip_p if seeds >= 6 else student_p
    studies = [rng.normal(size=(3, seeds)) for _ in range(STUDIES)]
    pairs = [
        [test(list(a - b)), test(list(a - c)), test(list(b - c))] for a, b, c in (map(np.array, s) for s in studies)
    ]
    alarms = np.mean([min(holm(p_values)) <= 0.05 for p_values in pairs])
    print(f"{alarms:.1%} false alarms")
    assert alarms <= 0.05 + MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("seeds", [3, 6, 12])
def test_the_interval_over_seeds_and_samples_covers_equal_recipes(seeds, deviation):
    """In 93 to 97 of 100 studies, and up to 98 where seeds differ so little that their spread is hard to see."""
    rng = np.random.default_rng(0)
    found = [crossed_interval(simulated(rng, seeds, 300, deviation)) for _ in range(STUDIES)]
    covered = np.mean([low <= 0 <= high for low, high in found])
    print(f"{covered:.1%} covered")
    assert 0.93 <= covered <= (0.98 if deviation == 0.01 else 0.97)
