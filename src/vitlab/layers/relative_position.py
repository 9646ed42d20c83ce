"""Positions relative to each other, as a bias on the scores of attention.

B batch, h w grid, N patches (h·w), P prefix tokens, T tokens (P+N)
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.attention import NoPosition
from vitlab.layers.mixed_grids import Grids, MixedGrids
from vitlab.layers.patches import Grid, places
from vitlab.layers.position_embedding import resample
from vitlab.layers.written_attention import mask_scores


class RelativePosition(NoPosition):
    """A learned number for each head and each offset between two patches, added to their score (Liu et al., 2021,
    arXiv:2103.14030, equation 4). Scores with a prefix token get 0.

    For another grid the table of (2h-1)·(2w-1) offsets is resampled.
    """

    def __init__(self, *, embed_dim: int, num_heads: int, grid: Grid, num_prefix_tokens: int):
        super().__init__()
        self.grid = grid
        self.num_prefix_tokens = num_prefix_tokens
        self.relative_position_bias_table = nn.Parameter(torch.empty(math.prod(offsets(grid)), num_heads))
        self.register_buffer("index", offset_index(grid), persistent=False)

    index: Tensor

    def resize(self, grid: Grid) -> Tensor:
        """The table for another grid. -> ((2h-1)·(2w-1), heads)"""
        return resample(self.relative_position_bias_table[None], offsets(self.grid), offsets(grid))[0]

    def gather_biases(self, grid: Grids) -> Tensor:
        """The numbers of each two patches. -> (1, N, N, heads), of mixed grids (B, N, N, heads)"""
        if isinstance(grid, MixedGrids):
            (h, w), (table, begins) = grid.sizes(), grid.tables(self.resize)
            row, column = grid.coordinates.unbind(-1)
            return table[begins[:, None, None] + compute_offset_index(row, column, h[:, None, None], w[:, None, None])]
        table = self.resize(grid)
        return table[self.index if grid == self.grid else offset_index(grid, table.device)][None]

    def bias(self, attn_mask: Tensor | None, grid: Grids | None) -> Tensor:
        """-> (1, heads, T, T), of mixed grids (B, heads, T, T), or, with a mask, what both broadcast to."""
        bias = F.pad(self.gather_biases(grid or self.grid).permute(0, 3, 1, 2), (self.num_prefix_tokens, 0) * 2)
        return bias if attn_mask is None else mask_scores(bias, attn_mask)


def offsets(grid: Grid) -> Grid:
    """Count the rows and columns that two patches may lie apart, upwards and downwards. (h, w) -> (2h-1, 2w-1)"""
    return 2 * grid[0] - 1, 2 * grid[1] - 1


def offset_index(grid: Grid, device: torch.device | None = None) -> Tensor:
    """Number the offset, of (2h-1)·(2w-1), that leads from one patch to another. -> (N, N)"""
    return compute_offset_index(*places(grid, device), *grid)


def compute_offset_index(row: Tensor, column: Tensor, h: Tensor | int, w: Tensor | int) -> Tensor:
    """The same of patches that lie anywhere in a grid. 2 x (…, N) -> (…, N, N)"""
    down = row[..., :, None] - row[..., None, :] + h - 1
    right = column[..., :, None] - column[..., None, :] + w - 1
    return down * (2 * w - 1) + right
