"""Say what every kind of target has to tell about itself.

n images, B batch, K classes
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from torch import Tensor

from vitlab.errors import ConfigError

Indices = np.ndarray | Sequence[int] | slice


class Targets(ABC):
    """A target for each of n images, `values` (n, ...). The kind decides how a batch of them collates, how a pool is
    divided, and what the targets of a mixed image are."""

    kind: str  # for a sentence: images "with one class each"

    def __init__(self, values: np.ndarray):
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: Indices) -> Self:
        return type(self)(self.values[indices])

    @property
    def num_images(self) -> int:
        """Count the images, each once."""
        return len(self)

    def tolist(self) -> list[Any]:
        return cast(list[Any], self.values.tolist())

    def tobytes(self) -> bytes:
        """Give the bytes that a fingerprint covers."""
        return np.ascontiguousarray(self.values).tobytes()

    @abstractmethod
    def collate(self) -> Any:
        """Make tensors of a batch, each (B, ...), for all the images at hand; None where there is nothing to learn
        from."""

    @abstractmethod
    def words(self, i: int, class_names: Sequence[str]) -> str:
        """Say for a reader what the i-th image is labelled with."""

    def get_question(self, i: int) -> str:
        """Give the question about the i-th image; "": there is none."""
        return ""

    def divide(self, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
        """Share the images out at random: sorted indices for each name in `fractions`, which add up to 1."""
        return share_out(len(self), fractions, random)

    def shares(self, collated: Any, num_classes: int) -> Tensor:
        """Turn what `collate` gave into how much of each class there is (B, K), which mixing averages. Raises
        ConfigError for what has no average."""
        raise ConfigError(f"images {self.kind} cannot be mixed; set mixing=none")


def share_out(n: int, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
    """Share n things out at random: sorted numbers for each name in `fractions`, which add up to 1."""
    cuts = np.round(n * np.cumsum(list(fractions.values()))[:-1]).astype(int)
    return {name: np.sort(part) for name, part in zip(fractions, np.split(random.permutation(n), cuts), strict=True)}
