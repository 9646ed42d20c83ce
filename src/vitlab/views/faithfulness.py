"""Measure how faithful a heat map is: what a model says while the patches that it marks go, or come (Petsiuk et al.,
2018, RISE, arXiv:1806.07421, section 4.1: deletion and insertion).

C channels, H W image height and width, N patches in a grid, S steps, K classes
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

KERNEL, SIGMA = 11, 5.0  # pixels of the Gaussian that blurs the canvas of an insertion, as in the authors' code
STEPS = 20  # at most, between the whole image and none of it
ORDERS = 5  # random ones, which a map should beat


class Faithfulness(NamedTuple):
    """The probability of a class while patches are removed, and while they are added, the brightest of the map first:
    after no patch, and after each of S steps (S + 1,), or of several classes (S + 1, K)."""

    deletion: Tensor
    insertion: Tensor

    @property
    def deletion_score(self) -> float:
        """Area under the curve of deletion: low for a map that marks what the class is seen by."""
        return area(self.deletion)

    @property
    def insertion_score(self) -> float:
        """Area under the curve of insertion: high for such a map."""
        return area(self.insertion)


def measure_faithfulness(
    predict: Callable[[Tensor], Tensor], image: Tensor, heat: Tensor, grid: tuple[int, int], steps: int = STEPS
) -> Faithfulness:
    """Remove the patches of a normalised image (1, C, H, W) in the order of a map (N,), which leaves zeros, the mean of
    the training images; and add them in that order to the blurred image. `predict` gives the probability of one class
    for images (S + 1, C, H, W) -> (S + 1,), or of several -> (S + 1, K). Steps are as even as N allows, and at most
    N."""
    masks = mask_brightest(heat, grid, (image.shape[2], image.shape[3]), min(steps, heat.numel())).to(image.device)
    return Faithfulness(
        predict(torch.where(masks, torch.zeros_like(image), image)).float().cpu(),
        predict(torch.where(masks, image, blur(image))).float().cpu(),
    )


def measure_random(
    predict: Callable[[Tensor], Tensor], image: Tensor, grid: tuple[int, int], steps: int = STEPS
) -> list[Faithfulness]:
    """Measure what a map has to beat: patches in random orders, the same for every image."""
    maps = torch.rand(ORDERS, math.prod(grid), generator=torch.Generator().manual_seed(0))
    return [measure_faithfulness(predict, image, heat, grid, steps) for heat in maps]


def mask_brightest(heat: Tensor, grid: tuple[int, int], size: tuple[int, int], steps: int) -> Tensor:
    """Mark the pixels of the brightest patches, none at first and all at last: (N,) -> (S + 1, 1, H, W) bool. Of
    patches that are equally bright, the first comes first."""
    rank = torch.empty(heat.numel())
    rank[torch.argsort(heat.flatten().cpu(), descending=True, stable=True)] = torch.arange(heat.numel()).float()
    counts = torch.linspace(0, heat.numel(), steps + 1).round()
    marked = rank < counts[:, None]
    pixels = F.interpolate(marked.float().reshape(-1, 1, *grid), size=size, mode="nearest-exact")
    return pixels > 0.5


def blur(image: Tensor) -> Tensor:
    """Blur an image (1, C, H, W) with a Gaussian; its edge pixels continue outside."""
    places = torch.arange(KERNEL, dtype=image.dtype, device=image.device) - KERNEL // 2
    weights = torch.softmax(-(places**2) / (2 * SIGMA**2), dim=0)
    C = image.shape[1]
    padded = F.pad(image, (KERNEL // 2,) * 4, mode="replicate")
    along = F.conv2d(padded, weights.expand(C, 1, 1, -1), groups=C)
    return F.conv2d(along, weights[:, None].expand(C, 1, -1, 1), groups=C)


def area(curve: Tensor) -> float:
    """Return the area under a curve (S + 1,) over the share of patches, by the trapezoidal rule."""
    return float(torch.trapezoid(curve) / (len(curve) - 1))
