"""From the tokens of an image to one vector (Dosovitskiy et al., 2021, arXiv:2010.11929, appendix D.3).

B batch, P prefix tokens, N patches, D embed_dim, h heads

Each is told which patches are `present` (B, N), true or false, and leaves the others out; None: all are there.

A new kind is a class here and a line in `POOLS`: the model, its pictures and foreign weights read what it says of
itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.layers.cross_attention import CrossAttention
from vitlab.layers.written_attention import attention_weights, padding_mask


class Pooling(nn.Module):
    """What a kind says of itself: timm's name for it (None: timm does not have it), what it `reads` and whose attention
    is drawn beside it, in words, whether it needs a class token, whether the last norm usually comes after it, and
    whether it `chooses` among the patches by attention of its own, which `looks` gives then."""

    timm_name: str | None = None
    reads: str
    whose_attention = "the patches, on average (no class token is read)"
    needs_class_token = False
    before_norm = False
    chooses = False

    def share(self, num_tokens: int, num_prefix_tokens: int) -> Tensor:
        """The share of each token in what is read, before anything is looked at: as much of each patch. -> (T,)"""
        share = torch.zeros(num_tokens)
        share[num_prefix_tokens:] = 1 / (num_tokens - num_prefix_tokens)
        return share

    def looks(self, x: Tensor) -> Tensor:
        """Compute how much it looks at each patch, (B, P+N, D) -> (B, h, N)."""
        raise NotImplementedError


class ClassTokenPooling(Pooling):
    """Take the class token, which stands first. (B, 1+N, D) -> (B, D)."""

    timm_name = "token"
    reads = whose_attention = "the class token"
    needs_class_token = True

    def __init__(self, **others: Any):
        super().__init__()

    def share(self, num_tokens: int, num_prefix_tokens: int) -> Tensor:
        return torch.eye(num_tokens)[0]

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        return x[:, 0]


class MeanPooling(Pooling):
    """Average the patches; the `num_prefix_tokens` before them are left out. (B, P+N, D) -> (B, D)."""

    timm_name = "avg"
    reads = "the mean of the patches"
    before_norm = True

    def __init__(self, *, num_prefix_tokens: int, **others: Any):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        x = x[:, self.num_prefix_tokens :]  # (B, N, D)
        if present is None:
            return x.mean(dim=1)
        return x.masked_fill(~present[..., None], 0).sum(dim=1) / present.sum(dim=1, keepdim=True)


class AttentionPooling(CrossAttention, Pooling):
    """One learned query looks at all patches, and an MLP follows in a residual: the MAP head (Zhai et al., 2022,
    arXiv:2106.04560, section 3.2; Lee et al., 2019, arXiv:1810.00825). (B, P+N, D) -> (B, D).

    `mlp` makes the MLP, and `norm` the norm before it. The `num_prefix_tokens` first tokens are left out.
    """

    timm_name = "map"
    reads = "the attention pooling"
    chooses = True
    whose_attention = f"{Pooling.whose_attention},\nand in the last row that of the pooling"

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_prefix_tokens: int,
        mlp: Callable[[], nn.Module],
        norm: Callable[[], nn.Module],
    ):
        super().__init__(embed_dim=embed_dim, num_heads=num_heads)
        self.num_prefix_tokens = num_prefix_tokens
        self.latent = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.norm = norm()
        self.mlp = mlp()

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:  # type: ignore[override]  # own query
        x = super().forward(*self.query_and_patches(x), attn_mask=key_mask(present))[:, 0]
        return x + self.mlp(self.norm(x))

    def query_and_patches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, P+N, D) -> (B, 1, D), (B, N, D)"""
        return self.latent.expand(x.shape[0], -1, -1), x[:, self.num_prefix_tokens :]

    def looks(self, x: Tensor) -> Tensor:
        return self.weights(x)[:, :, 0]

    def weights(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """Compute how much the query looks at each patch. (B, P+N, D) -> (B, h, 1, N)"""
        q, k, _ = self.heads(*self.query_and_patches(x))
        return attention_weights(q, k, key_mask(present))


POOLS: dict[str, type[Pooling]] = {"cls": ClassTokenPooling, "mean": MeanPooling, "map": AttentionPooling}


def key_mask(present: Tensor | None) -> Tensor | None:
    """-> (B, 1, 1, N)"""
    return None if present is None else padding_mask(present)
