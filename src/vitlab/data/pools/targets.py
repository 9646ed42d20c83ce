"""What images are labelled with: one class each, or several at once.

n images, B batch, K classes. Targets (n,) are classes; (n, K) say of each class whether it is there, 1 or 0 (multi-hot)
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Target = int | np.ndarray  # of one image: a class, or (K,)


def multi_hot(labels: Sequence[Sequence[int]], num_classes: int) -> np.ndarray:
    """The classes of each image -> (n, K) uint8."""
    hot = np.zeros((len(labels), num_classes), dtype=np.uint8)
    rows = np.repeat(np.arange(len(labels)), [len(classes) for classes in labels])
    hot[rows, [k for classes in labels for k in classes]] = 1
    return hot


def target_at(targets: np.ndarray, i: int) -> Target:
    """Give the target of the i-th image."""
    return targets[i] if targets.ndim == 2 else int(targets[i])


def as_tensor(targets: Sequence[Target] | np.ndarray) -> Tensor:
    """Stack the targets of a batch: classes (B,) int64, or (B, K) float32."""
    if len(targets) and np.ndim(targets[0]):
        return torch.from_numpy(np.stack(list(targets)).astype(np.float32))
    return torch.as_tensor(targets, dtype=torch.long)


def classes_of(target: Target) -> list[int]:
    """The classes that one image has."""
    return np.flatnonzero(target).tolist() if isinstance(target, np.ndarray) else [target]


def words(target: Target, class_names: Sequence[str]) -> str:
    """The classes that one image has, for a reader."""
    return ", ".join(class_names[k] for k in classes_of(target)) or "none"


def first_places(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes that there are, and the first image of each."""
    if targets.ndim == 1:
        return np.unique(targets, return_index=True)
    classes = np.flatnonzero(targets.any(axis=0))
    return classes, targets[:, classes].argmax(axis=0)


def class_counts(targets: np.ndarray, num_classes: int) -> np.ndarray:
    """How many images have each class, (K,) int64."""
    if targets.ndim == 2:
        return targets.sum(axis=0, dtype=np.int64)
    return np.bincount(targets, minlength=num_classes)
