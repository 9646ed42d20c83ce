"""A batch on its way from the workers to the model.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """`inputs` are uint8 images (B, C, H, W) from a worker, and float patches (B, N, C·P·P), or images for a model
    that wants pixels, on the device. `target` (B,) holds classes, or (B, K) probabilities after mixing. `index` (B,)
    is the place in the split. `grid` (h, w) says how the patches lie; (1, 1) where none are cut. `unreadable`
    names files that could not be read and are not in the batch.
    """

    inputs: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which a batch has no use for
    grid: tuple[int, int] = (1, 1)
    unreadable: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One image (C, H, W) uint8 with its class and its place in the split."""

    image: Tensor
    target: int
    index: int  # type: ignore[assignment]


class Unreadable(NamedTuple):
    """An image that could not be read: which, and why."""

    name: str
    reason: str


def collate(samples: list[Sample | Unreadable]) -> Batch:
    """Stack samples into a batch; unreadable ones are named in it."""
    images = [s for s in samples if isinstance(s, Sample)]
    unreadable = tuple(f"{s.name}: {s.reason}" for s in samples if isinstance(s, Unreadable))
    return Batch(
        inputs=torch.stack([s.image for s in images]) if images else torch.empty(0, dtype=torch.uint8),
        target=torch.tensor([s.target for s in images], dtype=torch.long),
        index=torch.tensor([s.index for s in images], dtype=torch.long),
        unreadable=unreadable,
    )
