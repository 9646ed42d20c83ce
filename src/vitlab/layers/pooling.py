"""From the tokens of an image to one vector (Dosovitskiy et al., 2021, arXiv:2010.11929, appendix D.3).

B batch, P prefix tokens, N patches, D embed_dim, h heads

Each is told which patches are `present` (B, N), true or false, and leaves the others out; None: all are there.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vitlab.layers.cross_attention import CrossAttention
from vitlab.layers.written_attention import attention_weights, padding_mask


class ClassTokenPooling(nn.Module):
    """The class token, which stands first. (B, 1+N, D) -> (B, D)."""

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        return x[:, 0]


class MeanPooling(nn.Module):
    """The mean of the patches; the `num_prefix_tokens` before them are left out. (B, P+N, D) -> (B, D)."""

    def __init__(self, num_prefix_tokens: int):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        x = x[:, self.num_prefix_tokens :]  # (B, N, D)
        if present is None:
            return x.mean(dim=1)
        return x.masked_fill(~present[..., None], 0).sum(dim=1) / present.sum(dim=1, keepdim=True)


class AttentionPooling(CrossAttention):
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
        super().__init__(embed_dim=embed_dim, num_heads=num_heads)
        self.num_prefix_tokens = num_prefix_tokens
        self.latent = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.norm = norm()
        self.mlp = mlp

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:  # type: ignore[override]  # own query
        x = super().forward(*self.query_and_patches(x), attn_mask=key_mask(present))[:, 0]
        return x + self.mlp(self.norm(x))

    def query_and_patches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, P+N, D) -> (B, 1, D), (B, N, D)"""
        return self.latent.expand(x.shape[0], -1, -1), x[:, self.num_prefix_tokens :]

    def weights(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """How much the query looks at each patch. (B, P+N, D) -> (B, h, 1, N)"""
        q, k, _ = self.heads(*self.query_and_patches(x))
        return attention_weights(q, k, key_mask(present))


def key_mask(present: Tensor | None) -> Tensor | None:
    """-> (B, 1, 1, N)"""
    return None if present is None else padding_mask(present)
