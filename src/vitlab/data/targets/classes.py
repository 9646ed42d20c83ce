"""Classes: one an image, or several at once.

n images, B batch, K classes
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.targets.targets import Targets


class Classes(Targets):
    """Classes of either kind, for code that lets an image have any number of them."""

    @abstractmethod
    def get_classes(self, i: int) -> list[int]:
        """List the classes of the i-th image."""

    @abstractmethod
    def counts(self, num_classes: int) -> np.ndarray:
        """Count the images of each class, (K,) int64."""

    @abstractmethod
    def find_first_places(self) -> tuple[np.ndarray, np.ndarray]:
        """List the classes that occur, and the first image of each."""

    @staticmethod
    @abstractmethod
    def hard_labels(collated: Tensor) -> Tensor:
        """Turn what `collate` gave, or shares of a mixed image (B, K), into the labels that metrics count."""

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return ", ".join(class_names[k] for k in self.get_classes(i)) or "none"


class OneClass(Classes):
    """The class of each image, (n,) int64; a batch is (B,)."""

    kind = "with one class each"

    def get_classes(self, i: int) -> list[int]:
        return [int(self.values[i])]

    def collate(self) -> Tensor:
        return torch.as_tensor(self.values, dtype=torch.long)

    def shares(self, collated: Tensor, num_classes: int) -> Tensor:
        return F.one_hot(collated, num_classes).float()

    @staticmethod
    def hard_labels(collated: Tensor) -> Tensor:
        """Return the class; for a mixed image that of the larger part. (B,) or (B, K) -> (B,)"""
        return collated if collated.ndim == 1 else collated.argmax(dim=1)

    def counts(self, num_classes: int) -> np.ndarray:
        return np.bincount(self.values, minlength=num_classes)

    def find_first_places(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(self.values, return_index=True)

    def divide(self, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
        """Divide each class by itself: of m members, split k ends at round(m · (f₁ + … + fₖ))."""
        ends = np.cumsum(list(fractions.values()))
        parts: dict[str, list[np.ndarray]] = {name: [] for name in fractions}
        for label in np.unique(self.values):
            members = random.permutation(np.flatnonzero(self.values == label))
            cuts = np.round(len(members) * ends[:-1]).astype(int)
            for name, part in zip(fractions, np.split(members, cuts), strict=True):
                parts[name].append(part)
        return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}


class SeveralClasses(Classes):
    """Whether each image has each class, (n, K) uint8 of 1 and 0 (multi-hot); a batch is (B, K) float32."""

    kind = "that may have several classes"

    def get_classes(self, i: int) -> list[int]:
        return np.flatnonzero(self.values[i]).tolist()

    def collate(self) -> Tensor:
        return torch.from_numpy(self.values.astype(np.float32))

    def shares(self, collated: Tensor, num_classes: int) -> Tensor:
        return collated

    @staticmethod
    def hard_labels(collated: Tensor) -> Tensor:
        """Return whether the image has each class; a mixed one has those of at least half of it. (B, K) -> (B, K)"""
        return collated >= 0.5

    def counts(self, num_classes: int) -> np.ndarray:
        return cast(np.ndarray, self.values.sum(axis=0, dtype=np.int64))

    def find_first_places(self) -> tuple[np.ndarray, np.ndarray]:
        classes = np.flatnonzero(self.values.any(axis=0))
        return classes, self.values[:, classes].argmax(axis=0)

    def divide(self, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
        """Deal the images out by iterative stratification (Sechidis et al., 2011, doi:10.1007/978-3-642-23808-6_10).

        The class that the fewest images wait for comes first, each of its images, in random order, goes to the split
        that lacks that class most, of these to the one that lacks images most, then to the first. Images without a
        class go last, to the split that lacks images most.
        """
        shares = np.array(list(fractions.values()))
        splits = np.flatnonzero(shares > 0).tolist()
        chosen = np.full(len(self), splits[0])
        left = random.permutation(len(self)) if len(splits) > 1 else np.array([], dtype=int)
        waiting = self[left].counts(0)
        lack = np.outer(waiting, shares).tolist()  # (K, splits)
        room = (len(self) * shares).tolist()

        def deal(i: int, wanted: list[float]) -> None:
            split = max(splits, key=lambda s: (round(wanted[s], 6), round(room[s], 6), -s))
            chosen[i] = split
            room[split] -= 1
            for k in self.get_classes(i):
                lack[k][split] -= 1

        while waiting.any():
            label = int(np.where(waiting > 0, waiting, len(self) + 1).argmin())
            has_it = self.values[left, label] > 0
            for i in left[has_it].tolist():
                deal(i, lack[label])
            waiting = waiting - self[left[has_it]].counts(0)
            left = left[~has_it]
        for i in left.tolist():
            deal(i, room)
        return {name: np.flatnonzero(chosen == split) for split, name in enumerate(fractions)}


def make_classes(column: np.ndarray) -> Classes:
    """Take a column as files hold it: (n,) is one class each, (n, K) several."""
    return SeveralClasses(column) if column.ndim == 2 else OneClass(column)


def multi_hot(labels: Sequence[Sequence[int]], num_classes: int) -> SeveralClasses:
    """Turn the classes of each image into n rows of K zeros and ones."""
    hot = np.zeros((len(labels), num_classes), dtype=np.uint8)
    rows = np.repeat(np.arange(len(labels)), [len(classes) for classes in labels])
    hot[rows, [k for classes in labels for k in classes]] = 1
    return SeveralClasses(hot)


def find_stray(labels: np.ndarray, num_classes: int) -> int | None:
    """Find the first of labels (n,), counted from 0, that is no class; None if there is none."""
    odd = (labels < 0) | (labels >= num_classes)
    return int(odd.argmax()) if odd.any() else None
