"""Measure how far attention looks (Dosovitskiy et al., 2021, arXiv:2010.11929, figure 7 right and appendix D.7).

h w grid, N patches (h·w), P prefix tokens, T tokens (P+N)
"""

import torch
from torch import Tensor

from vitlab.layers import Grid, places


def patch_distances(grid: Grid, patch_size: int) -> Tensor:
    """Measure between the centres of any two patches, in pixels. -> (N, N)"""
    centres = torch.stack(places(grid), dim=1).float() * patch_size
    return torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distance(weights: Tensor, grid: Grid, patch_size: int) -> Tensor:
    """Average the distance in pixels from a patch to those it looks at, weighted by attention, over all patches. (...,
    T, T) -> (...)

    Attention to prefix tokens, which have no place, is left out: the weights on the patches are divided by their sum.
    """
    N = grid[0] * grid[1]
    among = weights[..., -N:, -N:]
    among = among / among.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    return (among * patch_distances(grid, patch_size)).sum(dim=-1).mean(dim=-1)
