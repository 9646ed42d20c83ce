"""Resize tensors whose shape follows the image or the patch.

h w grid, N patches (h·w), P patch_size, C channels, D embed_dim
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers import Grid, resample


@dataclass(frozen=True)
class Interpolation:
    """How a library resizes its position tables, and its patch kernels where it does: each gives other numbers."""

    mode: str = "bicubic"
    antialias: bool = True
    align_corners: bool | None = None

    def images(self, images: Tensor, size: Grid) -> Tensor:
        """Resize images. (B, C, H, W) -> (B, C, *size)"""
        return F.interpolate(images.float(), size=size, **asdict(self))

    def table(self, table: Tensor, old: Grid, new: Grid) -> Tensor:
        """Resize rows of patches. (1, h·w, D) -> (1, h'·w', D)"""
        return resample(table, old, new, **asdict(self))


TIMM = Interpolation()  # and ours


def resize_kernel(kernel: Tensor, size: Grid, interpolation: Interpolation) -> Tensor:
    """Resize a patch embedding to another patch size: find the kernel whose products with resized patches come nearest
    to those of the old kernel with the original patches (FlexiViT: Beyer et al., 2023, arXiv:2212.08013, section 3.2).
    If B resizes patches, that kernel is pinv(Bᵀ)·w. (D, C, P, P) -> (D, C, *size)"""
    old = (int(kernel.shape[-2]), int(kernel.shape[-1]))
    if old == tuple(size):
        return kernel
    basis = torch.eye(old[0] * old[1]).reshape(-1, 1, *old)  # every patch with one bright pixel
    resized = interpolation.images(basis, size).flatten(1)  # (P·P, P'·P'), Bᵀ
    new: Tensor = (kernel.float().flatten(2) @ torch.linalg.pinv(resized).T).unflatten(2, size)
    return new.to(kernel.dtype)


def resize_channels(kernel: Tensor, in_chans: int) -> Tensor:
    """Give the first convolution another number of channels, as timm does: grey is the sum over the old channels;
    otherwise they repeat, weighted so that an image of equal channels gets the same answer. (D, C, P, P) -> (D, C', P,
    P)"""
    old = kernel.shape[1]
    if in_chans == old:
        return kernel
    if in_chans == 1:
        return kernel.float().sum(dim=1, keepdim=True).to(kernel.dtype)
    repeated = kernel.repeat(1, math.ceil(in_chans / old), 1, 1)[:, :in_chans]
    return repeated * (old / in_chans)


def square(number: int) -> Grid | None:
    """Give the square grid of that many patches; None where there is none."""
    side = math.isqrt(max(number, 0))
    return (side, side) if number > 0 and side * side == number else None
