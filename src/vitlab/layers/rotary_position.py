"""Rotary positions: queries and keys are turned by where they lie, and their product sees only the offset.

B batch, h w grid, N patches (h·w), P prefix tokens, T tokens (P+N), d head width
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers.attention import NoPosition
from vitlab.layers.exports import Exports
from vitlab.layers.mixed_grids import Grids, MixedGrids
from vitlab.layers.patches import Grid, places


class RotaryPosition(NoPosition):
    """Axial rotary embedding (Su et al., 2021, arXiv:2104.09864; for images Heo et al., 2024, arXiv:2403.13298,
    equations 8 and 9): half of the pairs of a head turn with the column, half with the row. Prefix tokens stay.

    Nothing is learned, and any grid will do. Raises ValueError if 4 does not divide d.
    """

    temperature = 100.0
    exports: ClassVar[Exports] = {
        "timm_eva": {"rope_type": "cat", "rope_grid_indexing": "xy", "rope_temperature": temperature}
    }

    def __init__(self, *, embed_dim: int, num_heads: int, grid: Grid, num_prefix_tokens: int):
        super().__init__()
        self.head_dim = embed_dim // num_heads
        if self.head_dim % 4:
            raise ValueError(
                "position 'rotary' needs a head width that is a multiple of 4, but embed_dim/num_heads is "
                f"{self.head_dim}"
            )
        self.grid = grid
        self.num_prefix_tokens = num_prefix_tokens
        self.register_buffer("turns", self.angles(grid), persistent=False)

    turns: Tensor

    def angles(self, grid: Grids, device: torch.device | None = None) -> Tensor:
        """Compute the angle by which each pair of each token is turned, in radians. -> (T, d/2), of mixed grids (B, 1,
        T, d/2)"""
        patches = self.pairs(self.places(grid, device), self.temperature)
        return F.pad(patches, (0, 0, self.num_prefix_tokens, 0))

    def pairs(self, places: tuple[Tensor, Tensor], temperature: float) -> Tensor:
        """The angles of all pairs, of which each half turns with one of the places. 2 x (…, T) -> (…, T, d/2)"""
        frequency = frequencies(self.head_dim // 4, temperature, places[0].device)
        return torch.cat([place[..., None] * frequency for place in places], dim=-1)

    def places(self, grid: Grids, device: torch.device | None) -> tuple[Tensor, Tensor]:
        """Return the places that the first half of the pairs turns with, and the second. -> 2 x (N,), of mixed grids
        (B, 1, N)"""
        row, column = grid.coordinates[:, None].unbind(-1) if isinstance(grid, MixedGrids) else places(grid, device)
        return column, row

    def rotate(self, q: Tensor, k: Tensor, grid: Grids | None) -> tuple[Tensor, Tensor]:
        angles = self.turns
        own = grid is None or (not isinstance(grid, MixedGrids) and grid == self.grid)
        if not own or angles.dtype != torch.float32:  # a model in bf16 rounds its buffers
            angles = self.angles(grid or self.grid, q.device)
        return turn(q, angles), turn(k, angles)


class CenteredRotaryPosition(RotaryPosition):
    """Rotary positions of DINOv3 (Siméoni et al., 2025, arXiv:2508.10104, section 3.2): the centre of a patch lies
    between -1 and 1 along each side of the image, whatever the grid, and 1 is a whole turn. Rows come first.
    """

    exports: ClassVar[Exports] = {
        "timm_eva": {"rope_type": "dinov3", "rope_grid_indexing": "ij", "rope_temperature": RotaryPosition.temperature},
        "dinov3_vit": {"rope_theta": RotaryPosition.temperature},
    }

    def places(self, grid: Grids, device: torch.device | None) -> tuple[Tensor, Tensor]:
        column, row = super().places(grid, device)
        h, w = (size[:, None, None] for size in grid.sizes()) if isinstance(grid, MixedGrids) else grid
        return 2 * math.pi * ((2 * row + 1) / h - 1), 2 * math.pi * ((2 * column + 1) / w - 1)


class RegisterRotaryPosition(RotaryPosition):
    """Rotary positions of ViT-5 (Wang et al., 2026, arXiv:2602.08071): slower ones, rows first, and the registers,
    all prefix tokens but the first, turn by their places on a small square of their own. Raises ValueError if their
    number is no square.
    """

    temperature = 10_000.0
    register_temperature = 100.0

    def __init__(self, *, num_prefix_tokens: int, **sizes: Any):
        num_registers = num_prefix_tokens - 1
        self.side = math.isqrt(max(num_registers, 0))
        if self.side**2 != num_registers:
            raise ValueError(
                "position 'learned_rotary_registers' needs a class token and a square number of registers (1, 4, 9), "
                f"and there are {num_prefix_tokens} tokens before the patches"
            )
        super().__init__(num_prefix_tokens=num_prefix_tokens, **sizes)

    def angles(self, grid: Grids, device: torch.device | None = None) -> Tensor:
        angles = super().angles(grid, device)
        registers = self.pairs(self.places((self.side, self.side), device), self.register_temperature)
        registers = registers.expand(*angles.shape[:-2], -1, -1)
        return torch.cat([angles[..., :1, :], registers, angles[..., self.num_prefix_tokens :, :]], dim=-2)

    def places(self, grid: Grids, device: torch.device | None) -> tuple[Tensor, Tensor]:
        column, row = super().places(grid, device)
        return row, column


def frequencies(count: int, temperature: float, device: torch.device | None = None) -> Tensor:
    """Return frequencies from 1 down to nearly 1/temperature, in radians for each patch. -> (count,)"""
    return temperature ** -(torch.arange(count, device=device) / count)


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair (x[2i], x[2i+1]) by angle i, in float32. (…, T, d), (…, T, d/2) -> (…, T, d)"""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).type_as(x)
