"""The Transformer's decoder (Vaswani et al., 2017, arXiv:1706.03762, figure 1, right): it writes a text of what an
encoder has read, one token after the other, and is taught on whole texts at once.

B memories, N tokens of a memory, E memory_dim, R texts, M tokens of a text, D embed_dim, V vocab_size, L depth, h heads
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitlab.layers import DecoderBlock, Memory, MemoryAttention, PreNormDecoderBlock, SequenceAttention, Whole
from vitlab.models.attention_weights import noting_looks
from vitlab.models.text_parts import TextModule, TextParts
from vitlab.ranges import Count, Depth, Length, Positive, Rate, Unsigned, VocabSize, Width


class Looks(NamedTuple):
    """Where each token looks, in each layer: at the text so far (B, L, h, M, M), and at the memory (B, L, h, M, N)."""

    written: Tensor
    memory: Tensor


class Decoder(TextModule):
    """Tokens (B, M), numbers below `vocab_size`, and a memory (B, N, E) -> logits of the token after each (B, M, V).

    `max_length` is the most tokens that a text has, its end among them. `norm_first`: norms stand before attention and
    MLP, and one more before the head. `position` is "learned_1d", "sincos_1d", "rotary_1d" or "none". `scale_embedding`
    multiplies embeddings by √D; `embed_norm` puts a norm behind them; `tied`: the rows that embed also score. Without
    `causal` each token sees those that are still to be written, and without `scaled_attention` scores are not divided
    by √d: both are there to be seen failing. `drop_rate` drops values behind embeddings and within residuals,
    `attn_drop_rate` attention weights. Raises ValueError for sizes that do not fit together, and for an option that
    there is none of.
    """

    def __init__(
        self,
        *,
        vocab_size: VocabSize,
        max_length: Length,
        memory_dim: Width,
        embed_dim: Width,
        depth: Depth,
        num_heads: Count,
        mlp: str,
        mlp_ratio: Positive | None,
        mlp_dim: Width | None,
        norm: str,
        norm_eps: Unsigned,
        norm_first: bool,
        position: str,
        scale_embedding: bool,
        embed_norm: bool,
        tied: bool,
        causal: bool,
        scaled_attention: bool,
        initialization: str,
        drop_rate: Rate,
        attn_drop_rate: Rate,
    ):
        super().__init__()
        parts = TextParts(
            vocab_size=vocab_size,
            max_length=max_length,
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            mlp=mlp,
            mlp_ratio=mlp_ratio,
            mlp_dim=mlp_dim,
            norm=norm,
            norm_eps=norm_eps,
            position=position,
            scale_embedding=scale_embedding,
            embed_norm=embed_norm,
            scaled_attention=scaled_attention,
            initialization=initialization,
            drop_rate=drop_rate,
            attn_drop_rate=attn_drop_rate,
        )
        self.max_length, self.memory_dim, self.depth = max_length, memory_dim, depth
        self.causal, self.scheme = causal, initialization
        attention = parts.causal_attention if causal else parts.attention
        block = PreNormDecoderBlock if norm_first else DecoderBlock
        self.embed = parts.embedding()
        self.blocks = nn.ModuleList(
            block(
                attention=attention(),
                cross_attention=parts.cross_attention(memory_dim=memory_dim),
                mlp=parts.mlp(),
                norm=parts.norm,
            )
            for _ in range(depth)
        )
        self.norm = parts.norm() if norm_first else nn.Identity()
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        if tied:
            self.head.weight = self.embed.tokens.weight
        self.initialize()

    def forward(
        self, tokens: Tensor, memory: Tensor, memory_mask: Tensor | None = None, present: Tensor | None = None
    ) -> Tensor:
        """(B, M), (B, N, E) -> (B, M, V). `memory_mask`, broadcast to (B, h, M, N), as in `Attention`. `present` (B, M)
        is false where a text is only filled up, behind its end; a causal decoder does not ask."""
        return self.extend(tokens, [Whole(present)] * self.depth, [Memory(memory, memory_mask)] * self.depth)

    def extend(self, tokens: Tensor, sequences: Sequence[Whole], memories: Sequence[Memory]) -> Tensor:
        """Tokens (R, M) behind those that `sequences` know, and memories, one of each for each block -> (R, M, V).
        Raises ValueError for more tokens than max_length."""
        start = sequences[0].length
        if start + tokens.shape[1] > self.max_length:
            raise ValueError(f"a text of {start + tokens.shape[1]} tokens is longer than max_length {self.max_length}")
        x = self.embed(tokens, start)
        for block, sequence, memory in zip(self.blocks, sequences, memories, strict=True):
            x = block(x, sequence, memory)
        return self.head(self.norm(x))

    @torch.no_grad()
    def looks(self, tokens: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Looks:
        """Where the decoder looks while it writes what comes after each of `tokens` (B, M). A causal one looked there
        when it wrote token by token."""
        with noting_looks(self.blocks) as found:
            self.forward(tokens, memory, memory_mask)
        kinds = (SequenceAttention, MemoryAttention)
        return Looks(*(torch.stack([A for layer, A in found.items() if isinstance(layer, k)], dim=1) for k in kinds))

    def heads(self) -> list[nn.Linear]:
        return [self.head]
