"""Convolutions before the encoder, where ViT cuts patches (Xiao et al., 2021, arXiv:2106.14881, section 3.2).

B batch, C channels, H W image height and width, h w grid, N tokens (h·w), D embed_dim
"""

from collections.abc import Sequence

from torch import Tensor, nn

from vitlab.layers.mixed_grids import Grids, MixedGrids
from vitlab.layers.patch_embedding import check_shape, compute_grid
from vitlab.layers.patches import Grid


class ConvolutionalStem(nn.Module):
    """3x3 convolutions of stride 2 with batch norm and ReLU, one for each of `channels`, then a 1x1 convolution to D.

    Takes images (B, C, H, W), not patches, and gives (B, N, D) and their grid (h, w); its stride in pixels, 2 for each
    of `channels`, stands for the patch size. Raises ValueError as the patch embedding does, and for mixed
    grids.
    """

    def __init__(self, *, image_size: int | Sequence[int], channels: Sequence[int], in_chans: int, embed_dim: int):
        super().__init__()
        if not channels or min(channels) < 1:
            raise ValueError(f"stem_channels {list(channels)} is not a list of one or more widths of at least 1")
        self.in_chans = in_chans
        self.patch_size = 2 ** len(channels)
        self.image_size, self.grid = compute_grid(image_size, self.patch_size)
        layers: list[nn.Module] = []
        for before, after in zip([in_chans, *channels], channels, strict=False):
            layers += [nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(after), nn.ReLU()]
        self.proj = nn.Sequential(*layers, nn.Conv2d(channels[-1], embed_dim, kernel_size=1))

    def forward(self, x: Tensor, grid: Grids | None = None) -> tuple[Tensor, Grid]:
        if isinstance(grid, MixedGrids):
            raise ValueError(
                "a convolutional stem takes images of one size; for mixed sizes, choose a model with a patch_size"
            )
        h, w = grid or self.grid
        size = (self.in_chans, h * self.patch_size, w * self.patch_size)
        check_shape(x, size, "images of (channels, height, width)")
        return self.proj(x).flatten(2).transpose(1, 2), (h, w)  # (B, N, D)
