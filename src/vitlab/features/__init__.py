"""Features of images from a frozen model, and how well classes can be read from them without training."""

from vitlab.features.extraction import Features, extract, join_features
from vitlab.features.least_squares import Regression, choose_shots, ridge
from vitlab.features.mirror import is_mirror_invariant
from vitlab.features.nearest_neighbours import nearest_neighbours

__all__ = [
    "Features",
    "Regression",
    "choose_shots",
    "extract",
    "is_mirror_invariant",
    "join_features",
    "nearest_neighbours",
    "ridge",
]
