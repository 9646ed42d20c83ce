"""How far an accuracy on n images may be from that on all images: Wilson, 1927, doi:10.2307/2276774."""

from math import sqrt
from statistics import NormalDist


def wilson_interval(correct: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The shares p for which `correct` of n would be no surprise at this level: |p̂ - p| <= z·√(p(1 - p)/n), solved for
    p."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    p = correct / n
    centre = p + z**2 / (2 * n)
    half = z * sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n))
