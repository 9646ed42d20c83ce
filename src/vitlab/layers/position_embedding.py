"""Position embeddings that are added to the tokens (Dosovitskiy et al., 2021, arXiv:2010.11929, appendix D.4).

A model holds the numbers as one tensor, `pos_embed`; the classes here say what shape it has and how it is laid out over
the tokens of a grid. Any of them takes another grid than its own: its table is resampled, as between resolutions.

h w grid, N patches (h·w), P prefix tokens (class token, registers), T tokens (P+N), D embed_dim
"""

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.exports import WITH_TABLES, Exports
from vitlab.layers.mixed_grids import Grids, lay_out_tokens
from vitlab.layers.patches import Grid, places


def resample(
    table: Tensor,
    old: Grid,
    new: Grid,
    *,
    mode: str = "bicubic",
    antialias: bool = True,
    align_corners: bool | None = None,
) -> Tensor:
    """Values of patches from one grid to another, in float32: as timm does it, or in another way that
    `torch.nn.functional.interpolate` knows. (1, h·w, D) -> (1, h'·w', D); the identity for equal grids.
    """
    if old == new:
        return table
    image = table.float().reshape(1, *old, -1).permute(0, 3, 1, 2)  # (1, D, h, w)
    image = F.interpolate(image, size=new, mode=mode, antialias=antialias, align_corners=align_corners)
    return image.permute(0, 2, 3, 1).flatten(1, 2).to(table.dtype)


ADDED_ROWS: Exports = {
    "timm_vit": {"pos_embed": "learn"},
    "timm_eva": {"use_abs_pos_emb": True},
    **WITH_TABLES,
}


class Position(nn.Module):
    """No position embedding: the tokens are a set. The base of the others.

    `shape` is that of the table; `learned` tells whether training changes it. `embed_prefix` gives the prefix tokens
    rows of their own in it. Called with the table and a grid (None: the model's own) it gives (1, T, D), or what
    broadcasts to that; (B, T, D) for mixed grids.

    `has_rows`: whether the table holds a row of D numbers for each token. `exports`: which models of other libraries
    compute such positions; each class declares its own.
    """

    learned = False
    has_rows = False
    exports: ClassVar[Exports] = {
        "timm_vit": {"pos_embed": "none"},
        "timm_eva": {"use_abs_pos_emb": False},
        "dinov3_vit": {},
        **WITH_TABLES,
    }

    def __init__(self, *, embed_dim: int, grid: Grid, num_prefix_tokens: int, embed_prefix: bool):
        super().__init__()
        self.embed_dim = embed_dim
        self.grid = grid
        self.num_prefix_tokens = num_prefix_tokens
        self.num_prefix_rows = num_prefix_tokens if embed_prefix else 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, 0, self.embed_dim)

    def initial(self) -> Tensor:
        """The table of a fixed embedding."""
        return torch.empty(self.shape)

    def resize(self, table: Tensor, grid: Grid) -> Tensor:
        """The table, made for this object's grid, for another one."""
        return table

    def lay_out(self, table: Tensor, grid: Grid) -> Tensor:
        """-> (1, T, D), or what broadcasts to that"""
        return table.new_zeros(1, 1, 1)

    def forward(self, table: Tensor, grid: Grids | None) -> Tensor:
        return lay_out_tokens(partial(self.lay_out, table), grid or self.grid, self.num_prefix_tokens)


class Learned1D(Position):
    """A learned row for each token, in the order of the sequence: what ViT uses."""

    learned = True
    has_rows = True
    exports = ADDED_ROWS

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, self.num_prefix_rows + self.grid[0] * self.grid[1], self.embed_dim)

    def resize(self, table: Tensor, grid: Grid) -> Tensor:
        if grid == self.grid:
            return table
        prefix, patches = table[:, : self.num_prefix_rows], table[:, self.num_prefix_rows :]
        return torch.cat([prefix, resample(patches, self.grid, grid)], dim=1)

    def lay_out(self, table: Tensor, grid: Grid) -> Tensor:
        table = self.resize(table, grid)
        return F.pad(table, (0, 0, self.num_prefix_tokens - self.num_prefix_rows, 0))


class Learned2D(Position):
    """A learned row for each row of the grid and one for each column, of D/2 each, side by side. Prefix tokens get 0.

    The table holds the rows, then the columns. Raises ValueError if D is odd.
    """

    learned = True
    exports = ADDED_ROWS

    def __init__(self, **sizes: Any):
        super().__init__(**sizes)
        if self.embed_dim % 2:
            raise ValueError(f"position 'learned_2d' needs an even embed_dim, not {self.embed_dim}")

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, sum(self.grid), self.embed_dim // 2)

    def resize(self, table: Tensor, grid: Grid) -> Tensor:
        rows, columns = table.split(self.grid, dim=1)
        rows = resample(rows, (self.grid[0], 1), (grid[0], 1))
        return torch.cat([rows, resample(columns, (self.grid[1], 1), (grid[1], 1))], dim=1)

    def lay_out(self, table: Tensor, grid: Grid) -> Tensor:
        h, w = grid
        rows, columns = self.resize(table, grid).split(grid, dim=1)  # (1, h, D/2), (1, w, D/2)
        patches = torch.cat(
            [rows[:, :, None].expand(-1, -1, w, -1), columns[:, None].expand(-1, h, -1, -1)], dim=-1
        ).flatten(1, 2)  # (1, N, D)
        return F.pad(patches, (0, 0, self.num_prefix_tokens, 0))


def sines(position: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Sine and cosine of position / 10,000^exponent. (n,), (width,) -> 2 x (n, width)."""
    angle = position.double()[:, None] / 10_000**exponent
    return angle.sin(), angle.cos()


class SinCos1D(Learned1D):
    """Fixed sines and cosines by turns, of the place in the sequence of patches (Vaswani et al., 2017, section 3.5).
    Prefix tokens get 0. Raises ValueError if D is odd.
    """

    learned = False
    exports = ADDED_ROWS
    parts = 2

    def __init__(self, **sizes: Any):
        super().__init__(**sizes)
        if self.embed_dim % self.parts:
            raise ValueError(
                f"a sin-cos position needs an embed_dim that is a multiple of {self.parts}, and {self.embed_dim} is not"
            )

    def initial(self) -> Tensor:
        patches = self.values().float()[None]
        return F.pad(patches, (0, 0, self.num_prefix_rows, 0))

    def values(self) -> Tensor:
        """-> (N, D)"""
        width = self.embed_dim // 2
        place = torch.arange(self.grid[0] * self.grid[1])
        return torch.stack(sines(place, torch.arange(width, dtype=torch.float64) / width), dim=2).flatten(1)


class SinCos2D(SinCos1D):
    """Fixed sines and cosines of the column and of the row, D/4 each (Chen et al., 2021, arXiv:2104.02057), at
    frequencies from 1 to exactly 1/10,000 (Beyer et al., 2022, arXiv:2205.01580). Prefix tokens get 0. Raises
    ValueError if 4 does not divide D.
    """

    exports = ADDED_ROWS
    parts = 4

    def values(self) -> Tensor:
        row, column = places(self.grid)
        exponent = torch.linspace(0, 1, self.embed_dim // 4, dtype=torch.float64, device=column.device)
        return torch.cat([*sines(column, exponent), *sines(row, exponent)], dim=1)


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "learned_1d": Learned1D,
    "learned_2d": Learned2D,
    "sincos_1d": SinCos1D,
    "sincos_2d": SinCos2D,
    "relative": Position,  # these act in attention, and add nothing to the tokens
    "rotary": Position,
    "rotary_centered": Position,
    "learned_rotary": Learned1D,  # these do both
    "learned_rotary_registers": Learned1D,
}
