"""Images of different size and aspect ratio in one batch, each a sequence of patches filled up to the longest
(Dehghani et al., 2023, arXiv:2307.06304, section 2; Tschannen et al., 2025, arXiv:2502.14786, section 2.4).

B batch, h w grid, N patches of the longest sequence, P prefix tokens, T tokens (P+N), D width
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vitlab.layers.patches import Grid, places
from vitlab.layers.written_attention import join_masks, padding_mask


class MixedGrids(NamedTuple):
    """How the patches of each image of a batch lie when the images differ; `make_mixed_grids` lays out whole images.

    `coordinates` (B, N, 2) are the row and the column of each patch in its own image's grid, 0 where there is none.
    `mask` (B, N) is true where there is a patch, false where the sequence is only filled up. `grids` are the (h, w) of
    each image (a model's blocks also take one for all images), plain numbers so that nothing waits for the device. Some
    of an image's patches may be missing, and they may stand in any order: a patch is known by its coordinates.
    """

    coordinates: Tensor
    mask: Tensor
    grids: tuple[Grid, ...]

    def on_device(self, numbers: Sequence[int]) -> Tensor:
        """A number for each grid. -> (B,), or (1,) if all images have the same."""
        return torch.tensor(numbers).to(self.mask.device, non_blocking=True)  # a blocking copy waits for the device

    def sizes(self) -> tuple[Tensor, Tensor]:
        """Height and width of each grid. -> 2 x (B,), or (1,)"""
        return self.on_device([h for h, _ in self.grids]), self.on_device([w for _, w in self.grids])

    def tables(self, make: Callable[[Grid], Tensor]) -> tuple[Tensor, Tensor]:
        """Return what `make` gives for one grid, (rows, D), for each grid that occurs, one after the other; and in
        which row each image's begins. -> (sum of rows, D), (B,) or (1,)"""
        made = {grid: make(grid) for grid in dict.fromkeys(self.grids)}
        begins = dict(zip(made, accumulate(map(len, made.values()), initial=0), strict=False))
        return torch.cat(list(made.values())), self.on_device([begins[grid] for grid in self.grids])


Grids = Grid | MixedGrids


def make_mixed_grids(grids: Sequence[Grid], device: torch.device | None = None) -> MixedGrids:
    """Lay out whole images, patches in rows from the top left, the fill behind them. Raises ValueError for no grids,
    and for one without patches."""
    if not grids or min(map(min, grids)) < 1:
        raise ValueError(f"a batch of mixed grids needs at least one grid, each at least 1x1, not {list(grids)}")
    coordinates = [torch.stack(places(grid, device), dim=1) for grid in grids]  # each (h·w, 2)
    present = [torch.ones(len(each), dtype=torch.bool, device=device) for each in coordinates]
    whole = tuple((h, w) for h, w in grids)
    return MixedGrids(pad_sequence(coordinates, batch_first=True), pad_sequence(present, batch_first=True), whole)


def lay_out_tokens(lay_out: Callable[[Grid], Tensor], grid: Grids, num_prefix_tokens: int) -> Tensor:
    """Return what `lay_out` gives for the tokens of one grid, (1, T, D) or what broadcasts to that; of mixed grids,
    each token gets what it would in its own image's grid: (B, T, D)."""
    if not isinstance(grid, MixedGrids):
        return lay_out(grid)
    P, (_, width) = num_prefix_tokens, grid.sizes()
    table, begins = grid.tables(lambda one: lay_out(one)[0].expand(P + one[0] * one[1], -1))
    row, column = grid.coordinates.unbind(-1)
    prefix = torch.arange(P, device=row.device).expand(row.shape[0], -1)
    token = torch.cat([prefix, P + row * width[:, None] + column], dim=1)  # (B, T), each in its own image
    return F.embedding(begins[:, None] + token, table)


def present_patches(grid: Grids | None) -> Tensor | None:
    """True where a sequence is not only filled up, (B, N); None: everywhere."""
    return grid.mask if isinstance(grid, MixedGrids) else None


def mask_padding(attn_mask: Tensor | None, grid: Grids, num_prefix_tokens: int) -> Tensor | None:
    """An `attn_mask`, as in `Attention`, that also lets no token look at what only fills a sequence up."""
    if not isinstance(grid, MixedGrids):
        return attn_mask
    present = padding_mask(F.pad(grid.mask, (num_prefix_tokens, 0), value=True))  # (B, 1, 1, T)
    return present if attn_mask is None else join_masks(attn_mask, present)
