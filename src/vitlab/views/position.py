"""Measure what a model knows of positions (Dosovitskiy et al., 2021, arXiv:2010.11929, figure 7 center).

L layers, h w grid, N patches (h·w), D embed_dim
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers import RelativePosition, RotaryPosition, offsets
from vitlab.models import VisionTransformer


def cosine_similarity(table: Tensor) -> Tensor:
    """Compare each row with each other one, in [-1, 1]. (N, D) -> (N, N)"""
    unit = F.normalize(table, dim=1)
    return unit @ unit.T


def embedding_similarity(model: VisionTransformer) -> Tensor | None:
    """Compare the position embeddings that the stem adds to any two patches: (N, N). None if it adds none."""
    if not model.pos_embed.numel():
        return None
    with torch.no_grad():
        tokens = model.position(model.pos_embed, None)[0]
        return cosine_similarity(tokens[model.num_prefix_tokens :].float().cpu())


def relative_bias(model: VisionTransformer) -> Tensor | None:
    """Give what each layer and head adds to a score, by where the key lies as seen from a query in the middle: (L,
    heads, 2h-1, 2w-1). None without relative positions."""
    layers = [module for module in model.modules() if isinstance(module, RelativePosition)]
    if not layers:
        return None
    bias = (
        torch.stack([layer.relative_position_bias_table.detach() for layer in layers]).float().cpu()
    )  # (L, (2h-1)·(2w-1), heads), by query minus key
    table: Tensor = bias.unflatten(1, offsets(model.patch_embed.grid))  # (L, 2h-1, 2w-1, heads)
    return table.permute(0, 3, 1, 2).flip(-2, -1)


def rotary_similarity(model: VisionTransformer) -> Tensor | None:
    """Multiply a unit query with itself, each turned by its place, by where the second lies as seen from the first in
    the middle: (2h-1, 2w-1). All pairs of the query are equally long. None without rotary positions."""
    rotary = next((m for m in model.modules() if isinstance(m, RotaryPosition)), None)
    if rotary is None:
        return None
    grid, d = model.patch_embed.grid, rotary.head_dim
    query = torch.full((rotary.num_prefix_tokens + grid[0] * grid[1], d), d**-0.5, device=rotary.turns.device)
    turned = rotary.rotate(query, query, grid)[0][rotary.num_prefix_tokens :].float().cpu()
    ahead = (turned @ turned[0]).unflatten(0, grid)  # down and right; the other directions are alike
    below = torch.cat([ahead.flip(1)[:, :-1], ahead], dim=1)
    return torch.cat([below.flip(0)[:-1], below])
