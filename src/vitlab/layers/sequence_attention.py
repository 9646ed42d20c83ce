"""Attention within a text that is read or written, and from it to what was read.

R sequences, M tokens, T tokens with those before them, B memories, N tokens of a memory, D width, h heads, d head width
"""

from torch import Tensor, nn

from vitlab.layers.attention import Attention, CancelScaling
from vitlab.layers.cross_attention import CrossAttention
from vitlab.layers.key_value_cache import Memory, NoCache
from vitlab.layers.sequence_position import NoRotary
from vitlab.layers.written_attention import attention_weights


class SequenceAttention(Attention):
    """Attention among all tokens of a sequence, those that only fill it up left out. (R, M, D) -> (R, M, D).

    `turn` may rotate queries and keys by their places; not `scaled`, the softmax is of QKᵀ alone.
    """

    is_causal = False

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        turn: NoRotary,
        scaled: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
    ):
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            qkv_bias=True,
            drop_rate=drop_rate,
            attn_drop_rate=attn_drop_rate,
        )
        self.turn = turn
        self.cancel_scaling = nn.Identity() if scaled else CancelScaling()

    def forward(self, x: Tensor, sequence: NoCache) -> Tensor:  # type: ignore[override]  # places are those of a sequence
        q, k, v = self.project_heads(x, sequence)
        k, v = sequence.extend(k, v)  # (R, h, T, d)
        dropout_p = self.attn_drop_rate if self.training else 0.0
        is_causal = self.is_causal and q.shape[2] > 1  # a single token is the last: nothing is to be hidden
        x = self.product(q, k, v, self.mask(sequence), dropout_p, is_causal)
        return self.proj_drop(self.proj(x.transpose(1, 2).flatten(2)))

    def project_heads(self, x: Tensor, sequence: NoCache) -> tuple[Tensor, Tensor, Tensor]:
        """-> 3 x (R, h, M, d)"""
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)  # each (R, h, M, d)
        q, k = self.turn(q, k, sequence.length)
        return self.cancel_scaling(q), k, v

    def mask(self, sequence: NoCache) -> Tensor | None:
        """Return the mask of what attention hides, beside what is_causal says."""
        return sequence.attn_mask

    def weights(self, x: Tensor, sequence: NoCache) -> Tensor:  # type: ignore[override]
        """Compute how much each token of a whole sequence looks at each. (R, M, D) -> (R, h, M, M), each row a
        distribution."""
        q, k, _ = self.project_heads(x, sequence)
        return attention_weights(q, k, self.mask(sequence), self.is_causal)


class CausalAttention(SequenceAttention):
    """Each token looks at itself and at those before it (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3). What
    fills a sequence up stands behind it, and so is hidden already."""

    is_causal = True

    def forward(self, x: Tensor, sequence: NoCache) -> Tensor:  # type: ignore[override]
        assert sequence.length == 0 or x.shape[1] == 1, "a text grows by one token at a time"
        return super().forward(x, sequence)

    def mask(self, sequence: NoCache) -> Tensor | None:
        return None


class MemoryAttention(CrossAttention):
    """Attention from what is written to what was read. (R, M, D) -> (R, M, D), where R is B or a multiple."""

    def forward(self, x: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]
        k, v = memory.keys_and_values(self.keys_and_values)
        return self.attend(x, k, v, memory.attn_mask)

    def weights(self, x: Tensor, memory: Memory) -> Tensor:
        """Compute how much each token looks at each memory, anew. (B, M, D) -> (B, h, M, N), each row a
        distribution."""
        q, k, _ = self.heads(x, memory.tokens)
        return attention_weights(q, k, memory.attn_mask)
