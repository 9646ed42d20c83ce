"""Cutting images into patches, and putting them together again: the only place where either happens.

B batch, C channels, H W image height and width, P patch_size, h w grid (H/P, W/P), N patches (h·w)
"""

import torch
from torch import Tensor

Grid = tuple[int, int]


def places(grid: Grid, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """The row and the column in which each patch lies, patches in rows from the top left. (h, w) -> 2 x (N,)"""
    h, w = grid
    number = torch.arange(h * w, device=device)
    return number // w, number % w


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut images into patches, each flattened in the order of a convolution kernel (C, P, P).

    (B, C, H, W) -> (B, N, C·P·P), patches in rows from the top left. Raises ValueError if P does not divide H and W.
    """
    B, C, H, W = images.shape
    if H % patch_size or W % patch_size:
        raise ValueError(f"images of {H}x{W} pixels cannot be cut into patches of {patch_size}x{patch_size}")
    h, w = H // patch_size, W // patch_size
    x = images.reshape(B, C, h, patch_size, w, patch_size)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(B, h * w, C * patch_size * patch_size)


def unpatchify(patches: Tensor, patch_size: int, grid: Grid) -> Tensor:
    """Put patches back together: the inverse of `patchify`.

    (B, N, C·P·P) -> (B, C, h·P, w·P) with grid (h, w). Raises ValueError if N is not h·w.
    """
    B, N, size = patches.shape
    h, w = grid
    if h * w != N:
        raise ValueError(f"{N} patches do not fill a grid of {h}x{w}")
    x = patches.reshape(B, h, w, size // patch_size**2, patch_size, patch_size)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(B, -1, h * patch_size, w * patch_size)
