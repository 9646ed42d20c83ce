"""Attention from one sequence to another, as a decoder looks at what the encoder has read.

B batch, N queries, M memories, D embed_dim, E memory_dim, h heads, d head width (D/h)
"""

from torch import Tensor, nn

from vitlab.layers.attention import CancelScaling, auto_attention, split


class CrossAttention(nn.Module):
    """Queries of one sequence, keys and values of another (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3).

    (B, N, D), (B, M, E) -> (B, N, D). `memory_dim` is D unless it is given. `drop_rate`, `attn_drop_rate` are as in
    `Attention`; not `scaled`, the softmax is of QKᵀ alone. Raises ValueError if h does not divide D.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        memory_dim: int | None = None,
        scaled: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
    ):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.attn_drop_rate = attn_drop_rate
        self.product = auto_attention
        self.q = nn.Linear(embed_dim, embed_dim)
        self.kv = nn.Linear(memory_dim or embed_dim, 2 * embed_dim)
        self.cancel_scaling = nn.Identity() if scaled else CancelScaling()
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(drop_rate)

    def forward(self, x: Tensor, memory: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """`attn_mask`, broadcast to (B, h, N, M), as in `Attention`."""
        return self.attend(x, *self.keys_and_values(memory), attn_mask)

    def attend(self, x: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
        """(R, N, D), 2 x (B, h, M, d) -> (R, N, D). R is B, or a multiple: several sequences for each memory, one after
        the other, whose queries stand side by side, so that no memory is copied."""
        dropout_p = self.attn_drop_rate if self.training else 0.0
        attended = self.product(self.queries(x, k.shape[0]), k, v, attn_mask, dropout_p, False)  # (B, h, R/B·N, d)
        return self.proj_drop(self.proj(attended.transpose(1, 2).reshape(x.shape)))

    def queries(self, x: Tensor, num_memories: int) -> Tensor:
        """(R, N, D) -> (B, h, R/B·N, d)"""
        q = self.q(x)
        return self.cancel_scaling(split(q.reshape(num_memories, -1, q.shape[-1]), self.num_heads))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, M, E) -> 2 x (B, h, M, d)"""
        k, v = self.kv(memory).chunk(2, dim=-1)
        return split(k, self.num_heads), split(v, self.num_heads)

    def heads(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> (B, h, N, d), 2 x (B, h, M, d)"""
        return self.queries(x, memory.shape[0]), *self.keys_and_values(memory)
