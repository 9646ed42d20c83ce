"""From the tokens of an image to one vector (Dosovitskiy et al., 2021, arXiv:2010.11929, appendix D.3).

B batch, P prefix tokens, N patches, D embed_dim, h heads, d head width
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.written_attention import attention_weights


class ClassTokenPooling(nn.Module):
    """The class token, which stands first. (B, 1+N, D) -> (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class MeanPooling(nn.Module):
    """The mean of the patches; the `num_prefix_tokens` before them are left out. (B, P+N, D) -> (B, D)."""

    def __init__(self, num_prefix_tokens: int):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.num_prefix_tokens :].mean(dim=1)


class AttentionPooling(nn.Module):
    """One learned query looks at all patches, and an MLP follows in a residual: the MAP head (Zhai et al., 2022,
    arXiv:2106.04560, section 3.2; Lee et al., 2019, arXiv:1810.00825). (B, P+N, D) -> (B, D).

    `norm` makes the norm before the MLP. The `num_prefix_tokens` first tokens are left out.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_prefix_tokens: int,
        mlp: nn.Module,
        norm: Callable[[], nn.Module],
    ):
        super().__init__()
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.latent = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.q = nn.Linear(embed_dim, embed_dim)
        self.kv = nn.Linear(embed_dim, 2 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.norm = norm()
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        x = F.scaled_dot_product_attention(*self.heads(x))  # (B, h, 1, d)
        x = self.proj(x.transpose(1, 2).flatten(1))  # (B, D)
        return x + self.mlp(self.norm(x))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The query, and keys and values of the patches. (B, P+N, D) -> (B, h, 1, d), 2 x (B, h, N, d)"""
        q = self.q(self.latent).expand(len(x), -1, -1)
        k, v = self.kv(x[:, self.num_prefix_tokens :]).chunk(2, dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (q, k, v))
        return q, k, v

    def weights(self, x: Tensor) -> Tensor:
        """How much the query looks at each patch. (B, P+N, D) -> (B, h, 1, N)"""
        q, k, _ = self.heads(x)
        return attention_weights(q, k)
