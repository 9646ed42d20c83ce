"""Greedy decoding: the most probable token, again and again.

B texts, T max_length, V vocab_size
"""

import torch
from torch import Tensor

from vitlab.decoding.texts import GeneratedTexts, TextState, begin, check_max_length, make_texts
from vitlab.vocabulary import SpecialTokens


class Greedy:
    """Write the most probable token after those before it, until every text has ended or has `max_length` tokens, its
    end among them. Raises ValueError for a max_length below 1."""

    def __init__(self, *, max_length: int):
        check_max_length(max_length)
        self.max_length = max_length

    @torch.no_grad()
    def __call__(self, state: TextState, special: SpecialTokens, *, with_attention: bool = False) -> GeneratedTexts:
        last = begin(state, special, self.max_length)
        tokens: list[Tensor] = []
        log_probs: list[Tensor] = []
        lengths, ended = torch.zeros_like(last), torch.zeros_like(last, dtype=torch.bool)
        while len(tokens) < self.max_length and not ended.all():
            log_p, last = state.next_logits(last).float().log_softmax(dim=1).max(dim=1)  # (B,) each
            tokens.append(last)
            log_probs.append(log_p)
            lengths += ~ended
            ended |= last == special.end
        return make_texts(state, special, torch.stack(tokens, 1), lengths, torch.stack(log_probs, 1), with_attention)
