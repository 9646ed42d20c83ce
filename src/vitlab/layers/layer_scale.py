"""LayerScale (Touvron et al., 2021, arXiv:2103.17239, equation 2).

B batch, N tokens, D embed_dim
"""

import torch
from torch import Tensor, nn


class LayerScale(nn.Module):
    """A learned factor for each channel of a residual branch, small at first: the block starts near the identity.

    (B, N, D) -> (B, N, D); every factor starts at `scale`.
    """

    def __init__(self, embed_dim: int, scale: float):
        super().__init__()
        self.scale = scale
        self.gamma = nn.Parameter(torch.empty(embed_dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma
