"""Beam search with length normalisation (Wu et al., 2016, arXiv:1609.08144, section 7 and equation 14; its coverage
penalty is left out).

B inputs, W width of the beam, R texts in the making (B·W, at first B), T max_length, V vocab_size
"""

import torch

from vitlab.decoding.greedy import Greedy
from vitlab.decoding.texts import Decoding, GeneratedTexts, TextState, begin, check_max_length, make_texts
from vitlab.ranges import Count, Length, Unsigned
from vitlab.vocabulary import SpecialTokens


class BeamSearch:
    """Go on with the `width` most probable texts of each input, and give that with the highest
    log P / ((5 + length) / 6)^length_penalty among those that ended, or have `max_length` tokens, the end among them.

    A `length_penalty` of 0 ranks by probability, which longer texts lose; a larger one forgives them their length. An
    input's search is over once no text in the making can rank higher. Raises ValueError for a width or max_length below
    1, and a length_penalty below 0.
    """

    def __init__(self, *, max_length: Length, width: Count, length_penalty: Unsigned):
        check_max_length(max_length)
        self.max_length, self.width, self.length_penalty = max_length, width, length_penalty

    def penalty(self, length: int) -> float:
        """Return the divisor of the log probability of a text: equation 14."""
        penalty: float = ((5 + length) / 6) ** self.length_penalty
        return penalty

    @torch.no_grad()
    def __call__(self, state: TextState, special: SpecialTokens, *, with_attention: bool = False) -> GeneratedTexts:
        last = begin(state, special, self.max_length)
        B, W, T = len(last), self.width, self.max_length
        inputs = torch.arange(B, device=last.device)[:, None]
        scores = torch.full((B, W), -torch.inf, device=last.device)
        scores[:, 0] = 0  # at first there is one text of each, W times
        texts, logs = last.new_zeros(B, W, T), scores.new_zeros(B, W, T)
        best, best_score, lengths = last.new_zeros(B, T), scores.new_full((B,), -torch.inf), torch.zeros_like(last)
        best_logs, over = scores.new_zeros(B, T), torch.zeros_like(last, dtype=torch.bool)
        for t in range(T):
            log_p = state.next_logits(last).float().log_softmax(dim=1)
            log_p = log_p.unflatten(0, (B, -1))  # (B, W, V), the first time (B, 1, V)
            V, there = log_p.shape[2], log_p.shape[1]
            ranked, place = (scores[..., None] + log_p).flatten(1).topk(2 * W)  # W of them or more have not ended
            parent, token = place // V, place % V
            ended = (token == special.end) | (t == T - 1)
            log_p = log_p.expand(B, W, V).flatten(1).gather(1, place)  # (B, 2W)
            texts, logs = texts[inputs, parent], logs[inputs, parent]  # (B, 2W, T)
            texts[..., t], logs[..., t] = token, log_p

            score, which = (ranked / self.penalty(t + 1)).masked_fill(~ended, -torch.inf)[:, :W].max(dim=1)
            better = (score > best_score) & ~over
            best_score, lengths = score.where(better, best_score), lengths.masked_fill(better, t + 1)
            best = texts[inputs[:, 0], which].where(better[:, None], best)
            best_logs = logs[inputs[:, 0], which].where(better[:, None], best_logs)

            scores, kept = ranked.masked_fill(ended, -torch.inf).topk(W)
            over |= best_score >= scores[:, 0] / self.penalty(T)  # what is to come makes no text more probable
            if t == T - 1 or over.all():
                break
            texts, logs, last = texts[inputs, kept], logs[inputs, kept], token.gather(1, kept).flatten()
            state.select((inputs * there + parent.gather(1, kept).clamp(max=there - 1)).flatten())
        return make_texts(state, special, best, lengths, best_logs, with_attention)


def search(*, max_length: Length, width: Count, length_penalty: Unsigned) -> Decoding:
    """Make a beam search of `width`; of width 1, a greedy one. Raises ValueError as both."""
    beam = BeamSearch(max_length=max_length, width=width, length_penalty=length_penalty)
    return Greedy(max_length=max_length) if width == 1 else beam
