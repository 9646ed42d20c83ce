"""A batch on its way from the workers to the model.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import default_collate

from vitlab.data.pools.targets import Target, as_tensor
from vitlab.layers import Grid, MixedGrids, mixed_grids, patchify


class Key(NamedTuple):
    """Which sample at which time: all that its augmentation depends on, beside the seed. `view` tells repetitions of
    an image in one epoch apart; `image_size` is that of the crop, 0: the crop's own.
    """

    epoch: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which a key has no use for
    view: int = 0
    image_size: int = 0


class Batch(NamedTuple):
    """`inputs` are uint8 images (B, C, H, W) from a worker, and float patches (B, N, C·P·P), or images for a model that
    wants pixels, on the device. Images of different sizes are patches (B, N, C·P·P) from the start, filled up with
    zeros to the longest. `target` (B,) holds classes, or (B, K) float: probabilities after mixing, or which classes are
    there where an image may have several. `index` (B,) is the place in the split. `grid` (h, w) says how the patches
    lie, (1, 1) where none are cut, and for mixed sizes how they lie in each image, with `mask` and `coordinates`.
    `unreadable` names files that could not be read and are not in the batch.
    """

    inputs: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]
    grid: Grid | MixedGrids = (1, 1)
    unreadable: "tuple[Unreadable, ...]" = ()

    def to(self, device: torch.device) -> "Batch":
        """On the device, by copies that the host does not wait for where it is pinned."""
        return self.with_tensors(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def pin_memory(self) -> "Batch":
        """In memory that a GPU copies from by itself; a DataLoader calls it."""
        return self.with_tensors(lambda tensor: tensor.pin_memory())

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch, every tensor of it changed."""
        grid = self.grid
        if isinstance(grid, MixedGrids):
            grid = grid._replace(coordinates=change(grid.coordinates), mask=change(grid.mask))
        return Batch(change(self.inputs), change(self.target), change(self.index), grid, self.unreadable)

    def arguments(self) -> tuple[Any, ...]:
        """What the model is called with: patches and their grid, or images alone."""
        return (self.inputs,) if self.inputs.ndim == 4 else (self.inputs, self.grid)


class Sample(NamedTuple):
    """One image (C, H, W) uint8 with its class, or its classes (K,), and its place in the split."""

    image: Tensor
    target: Target
    index: int  # type: ignore[assignment]


class Unreadable(NamedTuple):
    """An image that could not be read: which, why, and its place in the split."""

    name: str
    reason: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def collate(
    samples: Sequence[Sample | Unreadable], patch_size: int | None = None, place: Tensor | None = None
) -> Batch:
    """Stack samples into a batch; unreadable ones are named in it. `patch_size`: of images that differ in size. `place`
    (bytes,): memory for the pixels."""
    found = [s for s in samples if isinstance(s, Sample)]
    images = [s.image for s in found]
    grid: Grid | MixedGrids = (1, 1)
    if patch_size is not None and images:
        grid = mixed_grids([(image.shape[-2] // patch_size, image.shape[-1] // patch_size) for image in images])
        N = grid.mask.shape[1]
        patches = [patchify(image[None], patch_size)[0] for image in images]  # (n, C·P·P) each
        images = [torch.nn.functional.pad(p, (0, 0, 0, N - len(p))) for p in patches]
    return Batch(
        inputs=stacked(images, place) if images else torch.empty(0, dtype=torch.uint8),
        target=as_tensor([s.target for s in found]),
        index=torch.tensor([s.index for s in found], dtype=torch.long),
        grid=grid,
        unreadable=tuple(s for s in samples if isinstance(s, Unreadable)),
    )


def stacked(images: Sequence[Tensor], place: Tensor | None) -> Tensor:
    """B tensors of one shape -> (B, ...), in `place` if they fit, else in memory of their own, which processes
    share."""
    size = len(images) * images[0].numel()
    if place is None or size > len(place):
        return default_collate(list(images))
    out = place[:size].view(len(images), *images[0].shape)
    torch.stack(list(images), out=out)
    return out
