"""What a model takes.

B batch, C channels, H W image height and width, P patch_size, N patches
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitlab.data.batches.raw_batch import on_device
from vitlab.layers import Grid, MixedGrids


class View(NamedTuple):
    """Float patches (B, N, C·P·P) and the `grid` in which they lie: (h, w), or one for each image where these differ in
    size, filled up with zeros to the longest. Images (B, C, H, W) without a grid for a model that wants pixels."""

    inputs: Tensor
    grid: Grid | MixedGrids | None = None

    def arguments(self) -> tuple[Any, ...]:
        """Give what the model is called with."""
        return (self.inputs,) if self.grid is None else (self.inputs, self.grid)


class TextView(NamedTuple):
    """Tokens of texts to be read (B, N), and which of them are `present` (B, N), not filled up."""

    words: Tensor
    present: Tensor

    def arguments(self) -> tuple[Tensor, Tensor]:
        """Give what the model is called with."""
        return self.words, self.present


class Batch(NamedTuple):
    """The views of B images, each a `View`: one in most regimes, several, of one size or more, where they are compared;
    or B texts as a `TextView`.

    `target` is what the targets' kind collates: classes (B,), or, where an image may have several or is mixed, (B, K)
    how much of each. `index` (B,) is the place in the split.
    """

    views: tuple[Any, ...]
    target: Any
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which a batch has no use for

    @property
    def view(self) -> Any:
        """Give the only view."""
        (view,) = self.views
        return view

    def to(self, device: torch.device) -> "Batch":
        return on_device(self, device)
