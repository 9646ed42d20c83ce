"""From the tokens of an image to one vector (Dosovitskiy et al., 2021, arXiv:2010.11929, appendix D.3).

B batch, N patches, D embed_dim
"""

from torch import Tensor, nn


class ClassTokenPooling(nn.Module):
    """The class token, which stands first. (B, 1+N, D) -> (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class MeanPooling(nn.Module):
    """The mean of the patches; the `num_prefix_tokens` before them are left out. (B, prefix+N, D) -> (B, D)."""

    def __init__(self, num_prefix_tokens: int):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.num_prefix_tokens :].mean(dim=1)
