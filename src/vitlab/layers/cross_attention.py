"""Attention from one sequence to another, as a decoder looks at what the encoder has read.

B batch, N queries, M memories, D embed_dim, h heads, d head width (D/h)
"""

from torch import Tensor, nn

from vitlab.layers.attention import auto_attention, split


class CrossAttention(nn.Module):
    """Queries of one sequence, keys and values of another (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3).

    (B, N, D), (B, M, D) -> (B, N, D). Raises ValueError if h does not divide D.
    """

    def __init__(self, *, embed_dim: int, num_heads: int):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.product = auto_attention
        self.q = nn.Linear(embed_dim, embed_dim)
        self.kv = nn.Linear(embed_dim, 2 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, memory: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """`attn_mask`, broadcast to (B, h, N, M), as in `Attention`."""
        x = self.product(*self.heads(x, memory), attn_mask, 0.0, False)  # (B, h, N, d)
        return self.proj(x.transpose(1, 2).flatten(2))

    def heads(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> (B, h, N, d), 2 x (B, h, M, d)"""
        k, v = self.kv(memory).chunk(2, dim=-1)
        return split(self.q(x), self.num_heads), split(k, self.num_heads), split(v, self.num_heads)
