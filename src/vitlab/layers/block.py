"""The pre-norm encoder block (Dosovitskiy et al., 2021, arXiv:2010.11929, figure 1 and equations 2 and 3).

B batch, N tokens, D embed_dim
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.layers.drop_path import DropPath
from vitlab.layers.mixed_grids import Grids
from vitlab.layers.position_embedding import Position


class Block(nn.Module):
    """Attention and MLP, each after a norm and within a residual. (B, N, D) -> (B, N, D).

    `norm` and `layer_scale` make a layer each time they are called.
    """

    def __init__(
        self,
        *,
        attention: nn.Module,
        mlp: nn.Module,
        norm: Callable[[], nn.Module],
        layer_scale: Callable[[], nn.Module] = nn.Identity,
        drop_path_rate: float = 0.0,
    ):
        super().__init__()
        self.norm1 = norm()
        self.attn = attention
        self.ls1 = layer_scale()
        self.drop_path1 = DropPath(drop_path_rate)
        self.norm2 = norm()
        self.mlp = mlp
        self.ls2 = layer_scale()
        self.drop_path2 = DropPath(drop_path_rate)

    def forward(self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None) -> Tensor:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), grid, attn_mask)))  # equation 2
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))  # equation 3


class PositionedBlock(Block):
    """A block that is told positions anew: "every layer" of the ViT paper's table 8.

    `position` lays out the table `pos_embed`, which is the block's own, or shared with other blocks when given.
    """

    def __init__(self, *, position: Position, pos_embed: Tensor | None, **parts: Any):
        super().__init__(**parts)
        self.position = position
        self.pos_embed: Tensor = nn.Parameter(torch.empty(position.shape)) if pos_embed is None else pos_embed

    def forward(self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None) -> Tensor:
        return super().forward(x + self.position(self.pos_embed, grid), grid, attn_mask)
