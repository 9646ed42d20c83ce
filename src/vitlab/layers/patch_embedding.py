"""Images as sequences of patches (Dosovitskiy et al., 2021, arXiv:2010.11929, section 3.1).

B batch, C channels, H W image height and width, P patch_size, N patches, D embed_dim
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.patches import patchify


class PatchEmbedding(nn.Module):
    """The linear projection E of flattened patches, equation 1; the same map as a convolution with stride P.

    The weight keeps a convolution's shape (D, C, P, P), so that published weights load. Takes patches
    (B, N, C·P·P), or images (B, C, H, W) which it cuts itself, and gives (B, N, D).
    """

    def __init__(self, *, image_size: int, patch_size: int, in_chans: int, embed_dim: int):
        super().__init__()
        if patch_size < 1 or image_size % patch_size:
            raise ValueError(f"image_size {image_size} is not a multiple of patch_size {patch_size}")
        self.patch_size = patch_size
        self.image_size = (image_size, image_size)
        self.grid = (image_size // patch_size, image_size // patch_size)
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    @property
    def num_patches(self) -> int:
        return self.grid[0] * self.grid[1]

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4:
            self._check(x.shape, (self.proj.in_channels, *self.image_size), "images of (channels, height, width)")
            x = patchify(x, self.patch_size)
        values = self.proj.weight[0].numel()
        self._check(x.shape, (self.num_patches, values), "(patches, channels x patch_size x patch_size)")
        return F.linear(x, self.proj.weight.flatten(1), self.proj.bias)

    @staticmethod
    def _check(shape: torch.Size, expected: tuple[int, ...], what: str) -> None:
        if shape[1:] != torch.Size(expected):
            raise ValueError(f"the model takes {what} {expected}, and was given {tuple(shape[1:])}")
