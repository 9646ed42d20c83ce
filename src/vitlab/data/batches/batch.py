"""What a model takes.

B batch, C channels, H W image height and width, P patch_size, N patches, K classes
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitlab.data.batches.tensors import on_device
from vitlab.layers import Grid, MixedGrids


class Batch(NamedTuple):
    """Float patches (B, N, C·P·P) and the `grid` in which they lie: (h, w), or one for each image where these differ in
    size, filled up with zeros to the longest. Images (B, C, H, W) without a grid for a model that wants pixels.

    `target` (B,) holds classes, or (B, K) float: probabilities after mixing, or which classes are there where an image
    may have several. `index` (B,) is the place in the split.
    """

    inputs: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which a batch has no use for
    grid: Grid | MixedGrids | None = None

    def to(self, device: torch.device) -> "Batch":
        return on_device(self, device)

    def arguments(self) -> tuple[Any, ...]:
        """What the model is called with."""
        return (self.inputs,) if self.grid is None else (self.inputs, self.grid)
