"""Measure how far a written text is from the right one.

B texts, M tokens of the longest
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.text import CharErrorRate

from vitlab.vocabulary import Vocabulary


class TextErrors(Metric):
    """`exact`: the share of texts that are right from first to last character. `cer`: characters to insert, delete or
    replace, over those that should stand there; NaN where there should be none.

    Tokens stay on the device until the scores are asked for. No text has more than `max_length` of them.
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.add_state("written", default=[], dist_reduce_fx="cat")
        self.add_state("wanted", default=[], dist_reduce_fx="cat")

    def update(self, written: Tensor, wanted: Tensor) -> None:
        """(B, M) and (B, M'), each text's end among its tokens, and padding behind it."""
        self.written.append(self.filled(written))
        self.wanted.append(self.filled(wanted))

    def filled(self, tokens: Tensor) -> Tensor:
        """Pad texts to one length, in all batches and on all devices. -> (B, max_length)"""
        missing = self.max_length - tokens.shape[1]
        assert missing >= 0, f"a text of {tokens.shape[1]} tokens where {self.max_length} are the most"
        return F.pad(tokens.int(), (0, missing), value=self.vocabulary.special.padding)

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Let a rank that could read none of its samples take part with nothing; torchmetrics would gather another
        shape."""
        if isinstance(self.written, list) and not self.written:
            nothing = torch.empty(0, self.max_length, dtype=torch.int32, device=self.device)
            self.update(nothing, nothing)
        super().sync(*args, **kwargs)

    def compute(self) -> dict[str, Tensor]:
        """NaN without any text."""
        written, wanted = (self.texts(state) for state in (self.written, self.wanted))
        wrong = [pair for pair in zip(written, wanted, strict=True) if pair[0] != pair[1]]
        distance = CharErrorRate()
        distance.update([text for text, _ in wrong], [text for _, text in wrong])
        counts = torch.tensor([len(wanted) - len(wrong), len(wanted), sum(map(len, wanted))], dtype=torch.float32)
        return {"exact": counts[0] / counts[1], "cer": distance.errors / counts[2]}

    def texts(self, state: list[Tensor] | Tensor) -> list[str]:
        tokens = torch.cat(state) if isinstance(state, list) else state
        return [self.vocabulary.decode(row) for row in tokens.tolist()]
