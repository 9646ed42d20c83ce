"""Features of images from a frozen model, and how well classes can be read from them without training."""

from vitlab.features.extraction import Features, extract, joined
from vitlab.features.least_squares import Regression, few_of_each_class, ridge
from vitlab.features.mirror import same_in_a_mirror
from vitlab.features.nearest_neighbours import nearest_neighbours

__all__ = [
    "Features",
    "Regression",
    "extract",
    "few_of_each_class",
    "joined",
    "nearest_neighbours",
    "ridge",
    "same_in_a_mirror",
]
