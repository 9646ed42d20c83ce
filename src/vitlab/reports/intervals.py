"""Give confidence intervals of measured figures."""

from collections.abc import Sequence
from math import isfinite, nan, sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float

    def clip(self, low: float, high: float) -> "Interval":
        """Cut off what lies outside of the values that are possible."""
        return Interval(max(low, self.low), min(high, self.high))


def half_width(values: Sequence[float], level: float = CONFIDENCE) -> float:
    """Return half the width of Student's t interval of a mean: t·s/√n. It assumes values that are normally distributed.
    0 for a single value, NaN where one is not finite."""
    from scipy.stats import t

    if not all(map(isfinite, values)):
        return nan
    if len(values) < 2:
        return 0.0
    return float(t.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))


def student_interval(values: Sequence[float], level: float = CONFIDENCE) -> Interval:
    """Return Student's t interval of the mean."""
    mean, half = fmean(values), half_width(values, level)
    return Interval(mean - half, mean + half)


def bca_interval(values: Sequence[float], level: float = CONFIDENCE, seed: int = 0) -> Interval:
    """Return the bias-corrected and accelerated bootstrap interval of the mean (Efron, 1987,
    doi:10.1080/01621459.1987.10478410), of 9,999 resamples. It assumes no distribution, but is too narrow for few
    values: of six it holds the true mean in about 88 of 100 cases, of 30 in 94 (simulated). Equal values, and a single
    one, have an interval without width."""
    from numpy.random import default_rng
    from scipy.stats import bootstrap

    if len(set(values)) < 2:
        return Interval(values[0], values[0])

    def mean(sample, axis):  # type: ignore[no-untyped-def]  # scipy calls it with arrays
        return sample.mean(axis=axis)

    found = bootstrap((values,), mean, confidence_level=level, method="BCa", rng=default_rng(seed))
    return Interval(float(found.confidence_interval.low), float(found.confidence_interval.high))


def wilson_interval(correct: float, n: int, level: float = CONFIDENCE) -> Interval:
    """Return the ends of the confidence interval of a share p of which `correct` of n were observed: the p with
    |p̂ - p| <= z·√(p(1 - p)/n), where p̂ = correct/n. Wilson, 1927, doi:10.2307/2276774."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    p = correct / n
    centre = p + z**2 / (2 * n)
    half = z * sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n)))


def spread_of_test_set(accuracy: float, n: int, level: float = CONFIDENCE) -> float:
    """Return the half width of the interval that the choice of n test images alone gives an accuracy: z·√(p(1 - p)/n).
    0.47 points at 94 % of 10,000 images."""
    return NormalDist().inv_cdf((1 + level) / 2) * sqrt(accuracy * (1 - accuracy) / n)
