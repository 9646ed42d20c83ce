"""Begin and finish texts, whatever way they are decoded.

B texts, R texts in the making (B, or as many of each), M tokens of the longest, V vocab_size, L layers, h heads, N
tokens of what was read
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from vitlab.vocabulary import SpecialTokens


class TextState(Protocol):
    """Texts in the making, at first one of each input: `next_logits` takes the last token of each (R,) and gives the
    logits of the next (R, V); `select` keeps some of them, by their numbers (R')."""

    num_texts: int
    vocab_size: int
    device: torch.device

    def reserve(self, max_length: int) -> None: ...
    def next_logits(self, tokens: Tensor) -> Tensor: ...
    def select(self, rows: Tensor) -> None: ...
    def attention_maps(self, tokens: Tensor) -> Any: ...


class GeneratedTexts(NamedTuple):
    """Tokens (B, M) behind the one that begins, each text's end among them, then padding; `present` (B, M) where they
    are no padding; `log_probs` (B, M) float32, of each token, in nats, 0 for padding. `attention` is where the decoder
    looked while it wrote each, (B, L, h, M, ·) at what was written and at what was read, if that was asked for."""

    tokens: Tensor
    present: Tensor
    log_probs: Tensor
    attention: Any = None


class Decoding(Protocol):
    """A way to decode: `special` are the tokens that begin, end and fill up."""

    def __call__(self, state: TextState, special: SpecialTokens, *, with_attention: bool = False) -> GeneratedTexts: ...


def check_max_length(max_length: int) -> None:
    """Raise ValueError for texts without a token."""
    if max_length < 1:
        raise ValueError(f"max_length {max_length} is not at least 1; an empty text has one token, its end")


def begin(state: TextState, special: SpecialTokens, max_length: int) -> Tensor:
    """Give the first token of each text. -> (B,)

    Raises ValueError for a vocabulary whose special tokens are not the decoder's, and for texts longer than it can
    write.
    """
    if max(special) >= state.vocab_size:
        raise ValueError(f"the vocabulary's token {max(special)} is not one of the decoder's {state.vocab_size} tokens")
    state.reserve(max_length)
    return torch.full((state.num_texts,), special.begin, device=state.device)


def make_texts(
    state: TextState, special: SpecialTokens, tokens: Tensor, lengths: Tensor, log_probs: Tensor, with_attention: bool
) -> GeneratedTexts:
    """Make texts of (B, T) tokens, of which the first `lengths` (B,) count."""
    M = int(lengths.max())
    present = torch.arange(M, device=tokens.device) < lengths[:, None]
    tokens = tokens[:, :M].masked_fill(~present, special.padding)
    read = torch.cat([torch.full_like(tokens[:, :1], special.begin), tokens[:, :-1]], dim=1)
    return GeneratedTexts(
        tokens,
        present,
        log_probs[:, :M].masked_fill(~present, 0),
        state.attention_maps(read) if with_attention else None,
    )
