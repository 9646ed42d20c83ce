"""Test whether a difference between runs is more than chance.

S seeds, N test samples
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

from vitlab.reports.intervals import CONFIDENCE, Interval

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


def count_seeds_needed(comparisons: int) -> int:
    """Return from how many seeds on the sign-flip test can give p < 0.05 after Holm's adjustment for that many
    comparisons: six for one, seven for three."""
    return next(seeds for seeds in count(1) if comparisons * least_p(seeds) <= LEVEL)


def student_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's t test of paired differences, one for each of S seeds. It assumes that
    they are normally distributed. 1 for equal ones, whose spread says nothing."""
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0).pvalue) if len(set(differences)) > 1 else 1.0


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


def crossed_interval(differences: Any, level: float = CONFIDENCE) -> Interval | None:
    """Return the t interval of the mean difference over other seeds and other test samples; over other samples alone
    for one seed, and None for two, which say too little of their spread.

    `differences` (S, N) holds, for each seed and test sample, what the second recipe scores more than the first. The
    variance of the mean is the sum of those by seeds and by samples, without the part that both contain, by the mean
    squares of a two-way layout; the degrees of freedom are Satterthwaite's (1946, doi:10.2307/3002019). In simulated
    studies it covers the truth 93 to 98 of 100 times. A bootstrap over both covered it 85 to 100 of 100 times.
    """
    import numpy as np
    from scipy.stats import t

    values = np.asarray(differences, dtype=float)
    seeds, samples = values.shape
    if seeds == 2 or samples < 2:
        return None
    mean = float(values.mean())
    by_seed, by_sample = values.mean(axis=1) - mean, values.mean(axis=0) - mean
    rest = values - mean - by_seed[:, None] - by_sample
    degrees = np.array([max(seeds - 1, 1), samples - 1, max(seeds - 1, 1) * (samples - 1)])
    squares = np.array([(by_seed**2).sum(), (by_sample**2).sum(), (rest**2).sum()])
    variances = squares / degrees / (seeds, samples, seeds * samples)  # of the mean
    total = np.maximum(variances[:2], variances[2]).sum() - variances[2]
    if total == 0:
        return Interval(mean, mean)
    half = float(t.ppf((1 + level) / 2, total**2 / (variances**2 / degrees).sum()) * np.sqrt(total))
    return Interval(mean - half, mean + half)
