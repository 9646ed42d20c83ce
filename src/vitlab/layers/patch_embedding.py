"""Images as sequences of patches (Dosovitskiy et al., 2021, arXiv:2010.11929, section 3.1).

B batch, C channels, H W image height and width, P patch_size, h w grid, N patches (h·w), D embed_dim
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.mixed_grids import Grids, MixedGrids
from vitlab.layers.patches import Grid, patchify


def compute_grid(image_size: int | Sequence[int], patch_size: int) -> tuple[Grid, Grid]:
    """Pixels and patches, (height, width) each. Raises ValueError if the patches do not fit."""
    if not isinstance(image_size, int) and len(image_size) != 2:
        raise ValueError(f"image_size {list(image_size)} is neither one number of pixels nor height and width")
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(patch_size, height, width) < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"image_size {image_size} is not a multiple of patch_size {patch_size}")
    return (height, width), (height // patch_size, width // patch_size)


class PatchEmbedding(nn.Module):
    """The linear projection E of flattened patches, equation 1; the same map as a convolution with stride P.

    The weight keeps a convolution's shape (D, C, P, P), so that published weights load. Takes patches
    (B, N, C·P·P), or images (B, C, H, W) which it cuts itself, and gives (B, N, D) and their grid (h, w).
    `image_size` is one number of pixels, or height and width. Inputs of another size are taken when their grid is
    given with them, and raise ValueError else. Of mixed grids it takes patches only, and does not look at what stands
    where there are none.
    """

    def __init__(self, *, image_size: int | Sequence[int], patch_size: int, in_chans: int, embed_dim: int):
        super().__init__()
        self.patch_size = patch_size
        self.image_size, self.grid = compute_grid(image_size, patch_size)
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x: Tensor, grid: Grids | None = None) -> tuple[Tensor, Grids]:
        x, grid = self.mask_patches(x, grid) if isinstance(grid, MixedGrids) else self.cut(x, grid or self.grid)
        return F.linear(x, self.proj.weight.flatten(1), self.proj.bias), grid

    def cut(self, x: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        """Images or patches -> (B, N, C·P·P)"""
        h, w = grid
        if x.ndim == 4:
            size = (self.proj.in_channels, h * self.patch_size, w * self.patch_size)
            check_shape(x, size, "images of (channels, height, width)")
            x = patchify(x, self.patch_size)
        check_shape(x, (h * w, self.proj.weight[0].numel()), "(patches, channels x patch_size x patch_size)")
        return x, (h, w)

    def mask_patches(self, x: Tensor, grid: MixedGrids) -> tuple[Tensor, MixedGrids]:
        """Patches, with 0 where there are none. (B, N, C·P·P) -> (B, N, C·P·P)"""
        grids, (B, N) = tuple((h, w) for h, w in grid.grids), grid.mask.shape
        if len(grids) != B or grid.coordinates.shape != (B, N, 2):
            had = f"{len(grids)} grids and coordinates {tuple(grid.coordinates.shape)}"
            raise ValueError(f"mixed grids with a mask {(B, N)} need {B} grids and coordinates {(B, N, 2)}, not {had}")
        size = self.proj.weight[0].numel()
        if x.shape != (B, N, size):
            what = f"(images, patches, channels x patch_size x patch_size) {(B, N, size)}"
            raise ValueError(f"with these mixed grids the model takes {what}, not {tuple(x.shape)}")
        return x.masked_fill(~grid.mask[..., None], 0), grid._replace(grids=grids)


def check_shape(x: Tensor, expected: tuple[int, ...], what: str) -> None:
    if x.shape[1:] != torch.Size(expected):
        raise ValueError(f"the model takes {what} {expected}, not {tuple(x.shape[1:])}")
