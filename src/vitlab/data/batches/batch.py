"""What a batch is on its way: what a worker hands over, and what the model takes.

B batch, C channels, H W image height and width, P patch_size, N patches
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import default_collate

from vitlab.layers import Grid, MixedGrids, make_mixed_grids, patchify

T = TypeVar("T")


class View(NamedTuple):
    """Patches (B, N, C·P·P) and the `grid` they lie in: (h, w), or one grid for each image where the images differ in
    size and are padded with zeros to the longest. Without a grid: images (B, C, H, W), for a model that wants pixels.
    """

    inputs: Tensor
    grid: Grid | MixedGrids | None = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments that the model is called with."""
        return (self.inputs,) if self.grid is None else (self.inputs, self.grid)


class TextView(NamedTuple):
    """Tokens of texts to be read (B, N), and which of them are `present` (B, N) rather than padding."""

    words: Tensor
    present: Tensor

    def arguments(self) -> tuple[Tensor, Tensor]:
        """Return the arguments that the model is called with."""
        return self.words, self.present


# -- what a worker hands over


class Sample(NamedTuple):
    """The views of one image, each (C, H, W) uint8, and its place in the split."""

    views: tuple[Tensor, ...]
    index: int  # type: ignore[assignment]  # hides tuple.index, which a sample has no use for

    @property
    def image(self) -> Tensor:
        """Return the only view, (C, H, W)."""
        (image,) = self.views
        return image


class UnreadableImage(NamedTuple):
    """An image that could not be read: its name, the reason, and its place in the split."""

    name: str
    reason: str
    index: int  # type: ignore[assignment]  # as in Sample

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class RawBatch(NamedTuple):
    """The views of B images in uint8, each images of one size (B, C, H, W), or, where images differ in size, patches as
    a `View`; or B texts to be read, as `Texts` collates them.

    `target` is what the kind of target collates; `index` (B,) is the place in the split; files in `unreadable` are not
    in the batch.
    """

    views: tuple[Any, ...]
    target: Any
    index: Tensor  # type: ignore[assignment]  # as in Sample
    unreadable: tuple[UnreadableImage, ...] = ()

    @property
    def view(self) -> Any:
        """Return the only view."""
        (view,) = self.views
        return view

    def to(self, device: torch.device) -> "RawBatch":
        return on_device(self, device)


# -- what the model takes


class Batch(NamedTuple):
    """The views of B images, each a `View`: one in most regimes, several, of one size or more, where they are compared;
    or B texts as a `TextView`.

    `target` is what the kind of target collates: classes (B,), or, where an image may have several or is mixed, the
    share of each class (B, K). `index` (B,) is the place in the split.
    """

    views: tuple[Any, ...]
    target: Any
    index: Tensor  # type: ignore[assignment]  # as in Sample

    @property
    def view(self) -> Any:
        """Return the only view."""
        (view,) = self.views
        return view

    def to(self, device: torch.device) -> "Batch":
        return on_device(self, device)


def on_device(batch: T, device: torch.device) -> T:
    """Copy the tensors of any kind of batch to the device; the host does not wait for pinned ones."""
    copied = apply_to_collection(batch, Tensor, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))
    return cast(T, copied)


# -- from samples to a batch


def collate(
    samples: Sequence[Sample | UnreadableImage],
    target: Any,
    patch_size: int | None = None,
    place: Tensor | None = None,
) -> RawBatch:
    """Stack samples into a batch, with the `target` of the readable ones, and list the others in it. `patch_size` is
    needed for images that differ in size; `place` (bytes,) is memory for the pixels."""
    found = [s for s in samples if isinstance(s, Sample)]
    unreadable = tuple(s for s in samples if isinstance(s, UnreadableImage))
    index = torch.tensor([s.index for s in found], dtype=torch.long)
    views: list[Tensor | View] = []
    for images in zip(*(s.views for s in found), strict=True):
        views.append(stack(images, place) if patch_size is None else cut_and_pad(images, patch_size, place))
        place = None if place is None else place[sum(image.numel() for image in images) :]
    return RawBatch(tuple(views), target, index, unreadable)


def cut_and_pad(images: Sequence[Tensor], patch_size: int, place: Tensor | None) -> View:
    """Cut images (C, H, W) of any sizes into patches, padded with zeros to the longest."""
    grid = make_mixed_grids([(image.shape[-2] // patch_size, image.shape[-1] // patch_size) for image in images])
    N = grid.mask.shape[1]
    patches = [patchify(image[None], patch_size)[0] for image in images]  # (n, C·P·P) each
    padded = [torch.nn.functional.pad(p, (0, 0, 0, N - len(p))) for p in patches]
    return View(stack(padded, place), grid)


def stack(images: Sequence[Tensor], place: Tensor | None) -> Tensor:
    """Stack B tensors of one shape to (B, ...): in `place` if they fit, else in new memory that processes share."""
    size = len(images) * images[0].numel()
    if place is None or size > len(place):
        return cast(Tensor, default_collate(list(images)))
    out = place[:size].view(len(images), *images[0].shape)
    torch.stack(list(images), out=out)
    return out
