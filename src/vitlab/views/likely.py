"""The likeliest classes of an image, in few words.

B images, K classes
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

MOST = 2  # classes of an image
LONGEST = 24  # letters of a name


class ClassProbability(NamedTuple):
    """A class, and its probability."""

    number: int
    name: str
    probability: float

    def __str__(self) -> str:
        return f"{shorten_name(self.name)} {self.probability:.1%}"


def likely(probabilities: Tensor, class_names: Sequence[str]) -> list[list[ClassProbability]]:
    """List at most `MOST` classes of each image, best first. (B, K) -> B lists"""
    values, classes = probabilities.float().cpu().topk(min(MOST, probabilities.shape[1]), dim=1)
    rows = zip(values.tolist(), classes.tolist(), strict=True)
    return [[ClassProbability(k, class_names[k], p) for p, k in zip(*row, strict=True)] for row in rows]


def shorten_name(name: str) -> str:
    """Shorten a name to its end, where names of files differ."""
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def describe_training(steps: int) -> str:
    """Whether weights have learned anything, in words."""
    return f"weights after {steps:,} training steps" if steps else "weights as they started: no step of training"
