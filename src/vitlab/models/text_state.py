"""Write a text step by step: a model is given the last token, and gives the logits of the next.

B inputs, N tokens of a memory, E memory_dim, Q tokens of a question, R texts (B, or a multiple: several of each input,
one after the other), M tokens of a text, V vocab_size
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers import CachedMemory, KVCache, Memory, NoCache
from vitlab.models.decoder import AttentionMaps, Decoder


class TextState:
    """One text for each of `num_texts` inputs, of at most `longest` tokens, all of which are read anew before each of
    the next. A kind says how it reads them."""

    def __init__(self, num_texts: int, vocab_size: int, longest: int, device: torch.device):
        self.num_texts, self.vocab_size, self.longest, self.device = num_texts, vocab_size, longest, device
        self.tokens = torch.empty(num_texts, 0, dtype=torch.long, device=device)

    def reserve(self, max_length: int) -> None:
        """Reserve room for that many tokens of each text. Raises ValueError for more than the model has places for."""
        if max_length > self.longest:
            raise ValueError(
                f"max_length {max_length} is more than the {self.longest} tokens that the model can write; make it "
                "smaller"
            )

    def logits(self, tokens: Tensor) -> Tensor:
        """Give the logits of the token after each of texts (R, M). -> (R, M, V)"""
        raise NotImplementedError

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Give the logits of the next token (R, V) from the last token of each text (R,)."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)
        return self.logits(self.tokens)[:, -1]

    def select(self, rows: Tensor) -> None:
        """Go on with texts by their numbers (R'), in any order and as often as they occur, equally many for each input,
        one input's after the other's."""
        self.tokens = self.tokens[rows]

    def attention_maps(self, tokens: Tensor) -> Any:
        """Tell where the model looked while it wrote what follows each of `tokens` (B, M)."""
        raise NotImplementedError


class DecoderState(TextState):
    """What a decoder writes of memories (B, N, E), behind a `question` (B, Q) each, if there is one."""

    def __init__(
        self, decoder: Decoder, memory: Tensor, memory_mask: Tensor | None = None, question: Tensor | None = None
    ):
        self.decoder, self.memory = decoder, Memory(memory, memory_mask)
        self.question = torch.empty(memory.shape[0], 0, dtype=torch.long, device=memory.device)
        self.question = self.question if question is None else question
        longest = decoder.max_length - self.question.shape[1]
        super().__init__(memory.shape[0], decoder.head.out_features, longest, memory.device)

    def prepend_question(self, tokens: Tensor) -> Tensor:
        """Put the questions before texts. (R, M) -> (R, Q + M)"""
        return torch.cat([self.question.repeat_interleave(tokens.shape[0] // self.num_texts, dim=0), tokens], dim=1)

    def logits(self, tokens: Tensor) -> Tensor:
        depth = self.decoder.depth
        return self.decoder.extend(self.prepend_question(tokens), [NoCache()] * depth, [self.memory] * depth)

    def attention_maps(self, tokens: Tensor) -> AttentionMaps:
        """Tell it of the question's tokens as well, each before it knew any later one."""
        tokens = self.prepend_question(tokens)
        lengths = range(1, tokens.shape[1] + 1)
        steps = [self.decoder.attention_maps(tokens[:, :m], self.memory.tokens, self.memory.attn_mask) for m in lengths]
        filled = [
            F.pad(step.written[..., -1:, :], (0, tokens.shape[1] - m)) for m, step in zip(lengths, steps, strict=True)
        ]
        return AttentionMaps(torch.cat(filled, dim=-2), torch.cat([step.memory[..., -1:, :] for step in steps], dim=-2))


class CachedDecoderState(DecoderState):
    """The same with a causal decoder, whose blocks keep keys and values of the memory and of earlier tokens."""

    def reserve(self, max_length: int) -> None:
        super().reserve(max_length)
        self.sequences = [KVCache(self.question.shape[1] + max_length) for _ in self.decoder.blocks]
        self.memories = [CachedMemory(self.memory) for _ in self.decoder.blocks]
        if self.question.shape[1]:
            self.decoder.extend(self.question, self.sequences, self.memories)

    def next_logits(self, tokens: Tensor) -> Tensor:
        return self.decoder.extend(tokens[:, None], self.sequences, self.memories)[:, -1]

    def select(self, rows: Tensor) -> None:
        for sequence in self.sequences:
            sequence.select(rows)

    def attention_maps(self, tokens: Tensor) -> AttentionMaps:
        return self.decoder.attention_maps(self.prepend_question(tokens), self.memory.tokens, self.memory.attn_mask)
