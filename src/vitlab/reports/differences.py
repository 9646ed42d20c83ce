"""Test whether a difference between runs is more than chance.

S seeds, N test samples
"""

from collections.abc import Sequence
from typing import Any

from vitlab.reports.intervals import CONFIDENCE, Interval, half_width

LEVEL = 0.05  # p-values up to it count as a difference
EXACT = 20  # seeds up to which all signs are tried; beyond, 100,000 random ones


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the exact sign-flip test of paired differences, one for each of S seeds: in how
    many of the 2^S choices of signs the mean lies as far from 0 (Fisher's randomization test). Without a difference
    between the recipes each sign is as likely as the other; nothing else is assumed."""
    import numpy as np

    values = np.asarray(differences, dtype=float)
    assert np.isfinite(values).all()
    if len(values) <= EXACT:
        choices = np.arange(2 ** len(values))[:, None]
        signs = 1 - 2 * ((choices >> np.arange(len(values))) & 1)
    else:
        signs = 1 - 2 * np.random.default_rng(0).integers(0, 2, (100_000, len(values)))
        signs[0] = 1  # the choice that was seen
    sums, seen = abs(signs @ values), abs(values.sum())
    return float((sums >= seen * (1 - 1e-12)).mean())


def least_p(seeds: int) -> float:
    """Return the least p-value that the sign-flip test can give: all S differences have one sign, 2/2^S. 0.25 with
    three seeds, 0.0625 with five, 0.031 with six."""
    return 2.0 ** (1 - seeds)


def compute_least_difference(differences: Sequence[float], level: float = CONFIDENCE) -> float:
    """Return the smallest mean difference that so many seeds with this spread could have shown: half the width of
    Student's interval, which assumes normally distributed differences."""
    return half_width(differences, level)


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Return the p-value of the exact McNemar test of two models on the same samples, of which `only_a` are classified
    correctly by the first alone and `only_b` by the second alone (McNemar, 1947, doi:10.1007/BF02295996). It says
    something of these two models, nothing of the recipes that they come from."""
    from scipy.stats import binomtest

    if only_a + only_b == 0:
        return 1.0
    return float(binomtest(only_a, only_a + only_b).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several comparisons, so that the chance of any false alarm among them stays at its level
    (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = largest
    return adjusted


def bootstrap_interval(differences: Any, level: float = CONFIDENCE, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the percentile interval of the mean difference over seeds and samples, both drawn anew with replacement.

    `differences` (S, N) holds, for each seed and test sample, what the second recipe scores more than the first. The
    drawn seeds share the drawn samples (the pigeonhole bootstrap of Owen, 2007, doi:10.1214/07-AOAS122), which errs on
    the wide side.
    """
    import numpy as np

    values, rng = np.asarray(differences, dtype=np.float32), np.random.default_rng(seed)
    seeds, samples = values.shape
    means = []
    for _ in range(resamples):
        drawn = np.bincount(rng.integers(0, samples, samples), minlength=samples)
        rows = values[rng.integers(0, seeds, seeds)].mean(axis=0)
        means.append(float(rows @ drawn) / samples)
    tail = 50 * (1 - level)
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(low), float(high))
