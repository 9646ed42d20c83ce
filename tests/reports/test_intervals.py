"""Intervals of measured figures, against scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from vitlab.reports.intervals import (
    bca_interval,
    half_width,
    spread_of_test_set,
    student_interval,
    wilson_interval,
)


@given(n=st.integers(1, 10**6), share=st.floats(0, 1), level=st.sampled_from([0.68, 0.95, 0.99]))
def test_the_interval_is_scipys(n, share, level):
    correct = round(share * n)
    theirs = binomtest(correct, n).proportion_ci(level, method="wilson")
    assert wilson_interval(correct, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_it_holds_the_share_and_stays_between_0_and_1():
    assert wilson_interval(0, 10)[0] == pytest.approx(0, abs=1e-12)
    assert wilson_interval(10, 10)[1] == pytest.approx(1, abs=1e-12)
    low, high = wilson_interval(9700, 10000)
    assert 0.966 < low < 0.97 < high < 0.974


def test_the_interval_of_a_mean_is_that_of_students_test():
    values = [0.9, 0.95, 0.97, 0.91, 0.93]
    interval = ttest_1samp(values, 0).confidence_interval(0.95)
    assert half_width(values) == pytest.approx((interval.high - interval.low) / 2)
    assert half_width([0.5]) == 0


def test_the_test_set_alone_brings_half_a_point():
    assert spread_of_test_set(0.94, 10_000) == pytest.approx(0.0047, abs=5e-5)


def test_students_interval_is_that_of_statsmodels():
    from statsmodels.stats.weightstats import DescrStatsW

    values = [0.93, 0.95, 0.91, 0.96]
    assert student_interval(values) == pytest.approx(DescrStatsW(values).tconfint_mean())


def test_equal_values_have_a_bca_interval_without_width():
    assert bca_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    assert bca_interval([0.5]) == (0.5, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "size", "studies"),
    [(student_interval, 3, 1000), (student_interval, 6, 1000), (bca_interval, 30, 3000)],
)
def test_intervals_cover_the_mean_in_93_to_97_of_100_studies(interval, size, studies):
    rng = np.random.default_rng(2)
    found = [interval(list(rng.normal(size=size))) for _ in range(studies)]
    covered = np.mean([low <= 0 <= high for low, high in found])
    print(f"{covered:.1%} covered")
    assert 0.93 <= covered <= 0.97
