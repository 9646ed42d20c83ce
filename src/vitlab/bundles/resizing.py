"""Resize images inside a graph as Pillow does, with any of its filters, as two products with matrices.

B images, C channels, H W image height and width, n the length of a side, s the length that is kept of the resized side
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Kernel = Callable[[Tensor], Tensor]


def bicubic(x: Tensor, a: float = -0.5) -> Tensor:
    """Keys, 1981, doi:10.1109/TASSP.1981.1163711, equation 15, with Pillow's a."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return torch.where(x < 1, near, torch.where(x < 2, a * (((x - 5) * x + 8) * x - 4), 0.0))


def sinc(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, (math.pi * x).sin() / torch.where(x == 0, 1.0, math.pi * x))


KERNELS: dict[str, Kernel] = {  # of distances, at least 0
    "box": lambda x: torch.where(x <= 0.5, 1.0, 0.0),
    "bilinear": lambda x: (1 - x).clamp_min(0),
    "hamming": lambda x: torch.where(x < 1, sinc(x) * (0.54 + 0.46 * (math.pi * x).cos()), 0.0),
    "bicubic": bicubic,
    "lanczos": lambda x: torch.where(x < 3, sinc(x) * sinc(x / 3), 0.0),
}


class Resize(nn.Module):
    """Resize images (B, H, W, C) in uint8 and of any size as evaluation does: whole (`WholeImage`), or the shorter side
    to `resize_size` before the centre is cut out (`CenterCrop`). -> (B, C, image_size, image_size), whole numbers.

    Pillow rounds after each direction, and so does this. Some values differ by 1: Pillow's weights have fixed points,
    and since version 13 it begins with the height of tall images.
    """

    def __init__(self, *, image_size: int, resize_size: int | None, interpolation: str):
        super().__init__()
        self.image_size, self.resize_size, self.interpolation = image_size, resize_size, interpolation

    def forward(self, image: Tensor) -> Tensor:
        H, W = image.shape[1], image.shape[2]
        x = image.permute(0, 3, 1, 2).float()
        sides = [torch.ones(n, dtype=torch.float64).sum() for n in (H, W)]  # as tensors, which may vary in a graph
        shorter = torch.minimum(*sides)
        down, across = (self.weigh(n, side, shorter) for n, side in zip((H, W), sides, strict=True))
        x = round_pixels(x @ across.T)  # (B, C, H, s)
        return round_pixels(down @ x)  # (B, C, s, s)

    def weigh(self, n: int, side: Tensor, shorter: Tensor) -> Tensor:
        """Weigh the pixels of a side for each pixel that is kept. -> (s, n)"""
        s = self.image_size
        whole: Tensor | float = s
        if self.resize_size is not None:
            whole = (self.resize_size * side / shorter).floor()
        start = (whole - s) / 2
        start = start.round() if isinstance(start, Tensor) else start
        step = side / whole
        row = torch.arange(s, dtype=torch.float64) + start
        centre = (2 * row + 1) * side / (2 * whole)  # (s,), in pixels of the source
        pixel = torch.arange(n, dtype=torch.float64)
        if self.interpolation == "nearest":
            return (pixel == centre[:, None].floor()).float()
        apart = (pixel + 0.5 - centre[:, None]) / step.clamp_min(1)
        near = (apart - 1e-12).abs() if self.interpolation == "box" else apart.abs()  # Pillow's box is (-0.5, 0.5]
        weights = KERNELS[self.interpolation](near)
        return (weights / weights.sum(dim=1, keepdim=True)).float()


def round_pixels(x: Tensor) -> Tensor:
    """Round to whole pixels, halves up, as fixed-point arithmetic does."""
    return (x + 0.5).floor().clamp(0, 255)
