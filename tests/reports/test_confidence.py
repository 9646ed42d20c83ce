"""Intervals of measured figures, against scipy's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from vitlab.reports.confidence import half_width, wilson_interval


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
