"""Measure how far a written text is from the right one.

B texts, M tokens of the longest, G groups
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.text import CharErrorRate

from vitlab.vocabulary import Vocabulary


class TextErrors(Metric):
    """`exact`: the share of texts that are right from first to last character. `cer`: characters to insert, delete or
    replace, over those that should stand there; NaN where there should be none. Of each group in `groups`,
    `exact_<name>` is the share of its texts that are right.

    Tokens stay on the device until the scores are asked for. No text has more than `max_length` of them.
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.groups: Sequence[str] = ()  # set before the first update
        self.add_state("written", default=[], dist_reduce_fx="cat")
        self.add_state("wanted", default=[], dist_reduce_fx="cat")
        self.add_state("belongs", default=[], dist_reduce_fx="cat")

    def update(self, written: Tensor, wanted: Tensor, belongs: Tensor | None = None) -> None:
        """(B, M) and (B, M'), each text's end among its tokens, and padding behind it; and, where there are groups,
        which of these each belongs to, (B, G) bool."""
        self.written.append(self.pad_texts(written))
        self.wanted.append(self.pad_texts(wanted))
        self.belongs.append(wanted.new_zeros(wanted.shape[0], 0, dtype=torch.bool) if belongs is None else belongs)

    def pad_texts(self, tokens: Tensor) -> Tensor:
        """Pad texts to one length, in all batches and on all devices. -> (B, max_length)"""
        missing = self.max_length - tokens.shape[1]
        assert missing >= 0, f"a text of {tokens.shape[1]} tokens where {self.max_length} are the most"
        return F.pad(tokens.int(), (0, missing), value=self.vocabulary.special.padding)

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Let a rank that could read none of its samples take part with nothing; torchmetrics would gather another
        shape."""
        if isinstance(self.written, list) and not self.written:
            nothing = torch.empty(0, self.max_length, dtype=torch.int32, device=self.device)
            self.update(nothing, nothing, nothing.new_empty(0, len(self.groups), dtype=torch.bool))
        super().sync(*args, **kwargs)

    def compute(self) -> dict[str, Tensor]:
        """NaN without any text."""
        written, wanted = (self.texts(state) for state in (self.written, self.wanted))
        wrong = [pair for pair in zip(written, wanted, strict=True) if pair[0] != pair[1]]
        distance = CharErrorRate()
        distance.update([text for text, _ in wrong], [text for _, text in wrong])
        counts = torch.tensor([len(wanted) - len(wrong), len(wanted), sum(map(len, wanted))], dtype=torch.float32)
        found = {"exact": counts[0] / counts[1], "cer": distance.errors / counts[2]}
        right = torch.tensor([a == b for a, b in zip(written, wanted, strict=True)], dtype=torch.bool)[:, None]
        belongs = (torch.cat(self.belongs) if isinstance(self.belongs, list) else self.belongs).cpu()  # (n, G)
        shares = (belongs & right).sum(dim=0) / belongs.sum(dim=0)
        return found | {f"exact_{name}": share for name, share in zip(self.groups, shares, strict=True)}

    def texts(self, state: list[Tensor] | Tensor) -> list[str]:
        tokens = torch.cat(state) if isinstance(state, list) else state
        return [self.vocabulary.decode(row) for row in tokens.tolist()]
