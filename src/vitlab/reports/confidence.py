"""Confidence intervals of measured figures, at 95 %."""

from collections.abc import Sequence
from math import isfinite, nan, sqrt
from statistics import NormalDist, stdev

CONFIDENCE = 0.95


def half_width(values: Sequence[float]) -> float:
    """Return half the width of the confidence interval of the mean, by Student's t distribution; 0 for a single value,
    NaN if a value is not finite."""
    from scipy.stats import t

    if not all(map(isfinite, values)):
        return nan
    if len(values) < 2:
        return 0.0
    return float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))


def wilson_interval(correct: float, n: int, level: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of a share p of which `correct` of n were observed: the p with
    |p̂ - p| <= z·√(p(1 - p)/n), where p̂ = correct/n. Wilson, 1927, doi:10.2307/2276774."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    p = correct / n
    centre = p + z**2 / (2 * n)
    half = z * sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n))
