"""Write a text step by step: the decoder is given the last token, and gives the logits of the next.

B memories, N tokens of a memory, E memory_dim, R texts (B, or a multiple: several of each memory, one after the other),
V vocab_size
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers import Growing, KeptMemory, Memory, Whole
from vitlab.models.decoder import Decoder, Looks


class Writing:
    """One text for each memory (B, N, E), of which the decoder reads all tokens anew before each of the next."""

    def __init__(self, decoder: Decoder, memory: Tensor, memory_mask: Tensor | None = None):
        self.decoder = decoder
        self.memory = Memory(memory, memory_mask)
        self.num_texts, self.device = memory.shape[0], memory.device
        self.vocab_size = decoder.head.out_features
        self.tokens = torch.empty(self.num_texts, 0, dtype=torch.long, device=self.device)

    def reserve(self, max_length: int) -> None:
        """Reserve room for that many tokens of each text. Raises ValueError for more than the decoder has places
        for."""
        if max_length > self.decoder.max_length:
            raise ValueError(
                f"max_length {max_length} is more than the {self.decoder.max_length} tokens that the decoder can write"
            )

    def following(self, tokens: Tensor) -> Tensor:
        """Give the logits of the next token (R, V) from the last token of each text (R,)."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)
        depth = self.decoder.depth
        return self.decoder.extend(self.tokens, [Whole()] * depth, [self.memory] * depth)[:, -1]

    def take(self, rows: Tensor) -> None:
        """Go on with texts by their numbers (R'), in any order and as often as they occur, equally many for each
        memory, one memory's after the other's."""
        self.tokens = self.tokens[rows]

    def looks(self, tokens: Tensor) -> Looks:
        """Tell where the decoder looked while it wrote what follows each of `tokens` (B, M), before it knew any later
        ones."""
        lengths = range(1, tokens.shape[1] + 1)
        steps = [self.decoder.looks(tokens[:, :m], self.memory.tokens, self.memory.attn_mask) for m in lengths]
        filled = [
            F.pad(step.written[..., -1:, :], (0, tokens.shape[1] - m)) for m, step in zip(lengths, steps, strict=True)
        ]
        return Looks(torch.cat(filled, dim=-2), torch.cat([step.memory[..., -1:, :] for step in steps], dim=-2))


class CachedWriting(Writing):
    """The same with a causal decoder, whose blocks keep keys and values of the memory and of earlier tokens."""

    def reserve(self, max_length: int) -> None:
        super().reserve(max_length)
        self.sequences = [Growing(max_length) for _ in self.decoder.blocks]
        self.memories = [KeptMemory(self.memory) for _ in self.decoder.blocks]

    def following(self, tokens: Tensor) -> Tensor:
        return self.decoder.extend(tokens[:, None], self.sequences, self.memories)[:, -1]

    def take(self, rows: Tensor) -> None:
        for sequence in self.sequences:
            sequence.take(rows)

    def looks(self, tokens: Tensor) -> Looks:
        return self.decoder.looks(tokens, self.memory.tokens, self.memory.attn_mask)
