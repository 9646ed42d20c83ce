"""What a worker hands over: images in uint8, what they are labelled with, where they stand, what could not be read.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import default_collate

from vitlab.data.batches.tensors import on_device
from vitlab.data.pools.targets import Target, as_tensor
from vitlab.layers import MixedGrids, mixed_grids, patchify


class Sample(NamedTuple):
    """One image (C, H, W) uint8 with its class, or its classes (K,), and its place in the split."""

    image: Tensor
    target: Target
    index: int  # type: ignore[assignment]  # hides tuple.index, which a sample has no use for


class Unreadable(NamedTuple):
    """An image that could not be read: which, why, and its place in the split."""

    name: str
    reason: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class RawBatch(NamedTuple):
    """Images of one size (B, C, H, W), uint8. `target` (B,) holds classes, or (B, K) which of them are there where an
    image may have several; `index` (B,) is the place in the split; files in `unreadable` are not in the batch."""

    images: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]
    unreadable: tuple[Unreadable, ...] = ()

    def to(self, device: torch.device) -> "RawBatch":
        return on_device(self, device)


class MixedBatch(NamedTuple):
    """The same of images that differ in size: patches (B, N, C·P·P), uint8, filled up with zeros to the longest, and
    how they lie in each image."""

    patches: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]
    grid: MixedGrids
    unreadable: tuple[Unreadable, ...] = ()

    def to(self, device: torch.device) -> "MixedBatch":
        return on_device(self, device)


def collate(
    samples: Sequence[Sample | Unreadable], patch_size: int | None = None, place: Tensor | None = None
) -> RawBatch | MixedBatch:
    """Stack samples into a batch; unreadable ones are named in it. `patch_size`: of images that differ in size. `place`
    (bytes,): memory for the pixels."""
    found = [s for s in samples if isinstance(s, Sample)]
    unreadable = tuple(s for s in samples if isinstance(s, Unreadable))
    target = as_tensor([s.target for s in found])
    index = torch.tensor([s.index for s in found], dtype=torch.long)
    images = [s.image for s in found]
    if patch_size is None or not images:
        pixels = stacked(images, place) if images else torch.empty(0, dtype=torch.uint8)
        return RawBatch(pixels, target, index, unreadable)
    grid = mixed_grids([(image.shape[-2] // patch_size, image.shape[-1] // patch_size) for image in images])
    N = grid.mask.shape[1]
    patches = [patchify(image[None], patch_size)[0] for image in images]  # (n, C·P·P) each
    filled = [torch.nn.functional.pad(p, (0, 0, 0, N - len(p))) for p in patches]
    return MixedBatch(stacked(filled, place), target, index, grid, unreadable)


def stacked(images: Sequence[Tensor], place: Tensor | None) -> Tensor:
    """B tensors of one shape -> (B, ...), in `place` if they fit, else in memory of their own, which processes
    share."""
    size = len(images) * images[0].numel()
    if place is None or size > len(place):
        return default_collate(list(images))
    out = place[:size].view(len(images), *images[0].shape)
    torch.stack(list(images), out=out)
    return out
