"""Collate what a worker hands over: uint8 views of each image, targets, places in the split, and what could not be
read.

B batch, C channels, H W image height and width, P patch_size, N patches
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import default_collate

from vitlab.layers import MixedGrids, mixed_grids, patchify

T = TypeVar("T")


class Sample(NamedTuple):
    """The views of one image, each (C, H, W) uint8, and its place in the split."""

    views: tuple[Tensor, ...]
    index: int  # type: ignore[assignment]  # hides tuple.index, which a sample has no use for

    @property
    def image(self) -> Tensor:
        """Give the only view, (C, H, W)."""
        (image,) = self.views
        return image


class Unreadable(NamedTuple):
    """An image that could not be read: which, why, and its place in the split."""

    name: str
    reason: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class MixedPatches(NamedTuple):
    """A view of images that differ in size: patches (B, N, C·P·P), uint8, filled up with zeros to the longest, and how
    they lie in each image."""

    patches: Tensor
    grid: MixedGrids


class RawBatch(NamedTuple):
    """Each view is images of one size (B, C, H, W), uint8, or `MixedPatches`. `target` is what the targets' kind
    collates; `index` (B,) is the place in the split; files in `unreadable` are not in the batch."""

    views: tuple[Tensor | MixedPatches, ...]
    target: Any
    index: Tensor  # type: ignore[assignment]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def view(self) -> Any:
        """Give the only view."""
        (view,) = self.views
        return view

    def to(self, device: torch.device) -> "RawBatch":
        return on_device(self, device)


def collate(
    samples: Sequence[Sample | Unreadable],
    target: Any,
    patch_size: int | None = None,
    place: Tensor | None = None,
) -> RawBatch:
    """Stack samples into a batch, with the `target` of those that could be read; list the others in it. `patch_size` is
    needed for images that differ in size, `place` (bytes,) is memory for the pixels."""
    found = [s for s in samples if isinstance(s, Sample)]
    unreadable = tuple(s for s in samples if isinstance(s, Unreadable))
    index = torch.tensor([s.index for s in found], dtype=torch.long)
    views: list[Tensor | MixedPatches] = []
    for images in zip(*(s.views for s in found), strict=True):
        views.append(stacked(images, place) if patch_size is None else mixed_patches(images, patch_size, place))
        place = None if place is None else place[sum(image.numel() for image in images) :]
    return RawBatch(tuple(views), target, index, unreadable)


def mixed_patches(images: Sequence[Tensor], patch_size: int, place: Tensor | None) -> MixedPatches:
    """Cut images (C, H, W) of any sizes into patches."""
    grid = mixed_grids([(image.shape[-2] // patch_size, image.shape[-1] // patch_size) for image in images])
    N = grid.mask.shape[1]
    patches = [patchify(image[None], patch_size)[0] for image in images]  # (n, C·P·P) each
    filled = [torch.nn.functional.pad(p, (0, 0, 0, N - len(p))) for p in patches]
    return MixedPatches(stacked(filled, place), grid)


def stacked(images: Sequence[Tensor], place: Tensor | None) -> Tensor:
    """Stack B tensors of one shape to (B, ...): in `place` if they fit, else in new memory that processes share."""
    size = len(images) * images[0].numel()
    if place is None or size > len(place):
        return default_collate(list(images))
    out = place[:size].view(len(images), *images[0].shape)
    torch.stack(list(images), out=out)
    return out


def on_device(batch: T, device: torch.device) -> T:
    """Copy the tensors of any kind of batch to the device; the host does not wait for those that are pinned."""
    return apply_to_collection(batch, Tensor, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))
