"""Name the numbers that an option can be: annotations of constructors, which a config is checked against.

A constructor itself checks only what its options say together, such as a width that its heads do not divide.
"""

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The bounds of a number: `least` and `most` are in it, `above` and `below` are not."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, value: float) -> float:
        """Return a value within the bounds. Raises ValueError for another one."""
        if not (self.least <= value <= self.most and self.above < value < self.below):
            raise ValueError(f"{value} is not {self}")
        return value

    def __str__(self) -> str:
        """Say it after the kind of number: "a number of at least 0 and below 1"."""
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"from {self.least:.15g} to {self.most:.15g}"
        words = {"of at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:.15g}" for word, bound in words.items() if math.isfinite(bound))


Natural = Annotated[int, Range(least=0)]
Count = Annotated[int, Range(least=1)]
Seed = Annotated[int, Range(least=0, most=2**32 - 1)]
Depth = Annotated[int, Range(least=1, most=1000)]  # layers
Width = Annotated[int, Range(least=1, most=2**20)]  # elements of a vector
Pixels = Annotated[int, Range(least=1, most=2**20)]  # of a side
VocabSize = Annotated[int, Range(least=2, most=2**25)]  # tokens
Length = Annotated[int, Range(least=1, most=2**20)]  # tokens of a sequence

Real = Annotated[float, Range(least=-1e30, most=1e30)]
Unsigned = Annotated[float, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
Factor = Annotated[float, Range(above=0, most=1)]
Share = Annotated[float, Range(least=0, most=1)]
Decay = Annotated[float, Range(above=0, below=1)]
Rate = Annotated[float, Range(least=0, below=1)]  # of what is dropped, or of the old in a moving average
Deviation = Annotated[float, Range(least=0, most=1e6)]  # a standard deviation
