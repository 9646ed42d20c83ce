"""The Transformer's decoder (Vaswani et al., 2017, arXiv:1706.03762, figure 1, right): it writes a text of what an
encoder has read, one token after the other, and is taught on whole texts at once.

B memories, N tokens of a memory, E memory_dim, R texts, M tokens of a text, D embed_dim, V vocab_size, L depth, h heads
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitlab.layers import DecoderBlock, Memory, MemoryAttention, NoCache, PreNormDecoderBlock, SequenceAttention
from vitlab.models.attention_weights import record_attention
from vitlab.models.options import accept_options
from vitlab.models.text_module import TextModule, TextOptions
from vitlab.ranges import Width


class AttentionMaps(NamedTuple):
    """Where each token looks, in each layer: at the text so far (B, L, h, M, M), and at the memory (B, L, h, M, N)."""

    written: Tensor
    memory: Tensor


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(TextOptions):
    memory_dim: Width  # of what was read
    tied: bool  # the rows that embed a token also score it


class Decoder(TextModule):
    """Tokens (B, M), numbers below `vocab_size`, and a memory (B, N, E) -> logits of the token after each (B, M, V).

    Without `causal` each token also sees later ones, and without `scaled_attention` scores are not divided by √d: both
    exist to be seen failing. Raises ValueError for sizes that do not fit together, and for an unknown name.
    """

    @accept_options(DecoderOptions)
    def __init__(self, options: DecoderOptions):
        kind = PreNormDecoderBlock if options.norm_first else DecoderBlock

        def build_block() -> DecoderBlock:
            return kind(
                attention=options.build_attention(),
                cross_attention=options.build_cross_attention(options.memory_dim),
                mlp=options.build_mlp(),
                norm=options.build_norm,
            )

        super().__init__(options, build_block)
        self.memory_dim = options.memory_dim
        self.head = nn.Linear(options.embed_dim, options.vocab_size, bias=False)
        if options.tied:
            self.head.weight = self.embed.tokens.weight
        self.initialize()

    def forward(
        self, tokens: Tensor, memory: Tensor, memory_mask: Tensor | None = None, present: Tensor | None = None
    ) -> Tensor:
        """(B, M), (B, N, E) -> (B, M, V). `memory_mask`, broadcast to (B, h, M, N), as in `Attention`. `present` (B, M)
        is false where a text is only filled up, behind its end; a causal decoder does not ask."""
        return self.extend(tokens, [NoCache(present)] * self.depth, [Memory(memory, memory_mask)] * self.depth)

    def extend(self, tokens: Tensor, sequences: Sequence[NoCache], memories: Sequence[Memory]) -> Tensor:
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
    def attention_maps(self, tokens: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> AttentionMaps:
        """Compute where the decoder looks while it writes what comes after each of `tokens` (B, M). A causal one looked
        there when it wrote token by token."""
        with record_attention(self.blocks) as found:
            self.forward(tokens, memory, memory_mask)
        kinds = (SequenceAttention, MemoryAttention)
        return AttentionMaps(
            *(torch.stack([A for layer, A in found.items() if isinstance(layer, k)], dim=1) for k in kinds)
        )

    def heads(self) -> list[nn.Linear]:
        return [self.head]
