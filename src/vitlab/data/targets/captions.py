"""Label images with texts that say what they show, in one of many ways.

n images, B batch, L tokens of the longest text
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices
from vitlab.data.targets.texts import Texts
from vitlab.vocabulary import Vocabulary


class CaptionBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded behind their `lengths` (B,), and what each means (B,)."""

    codes: Tensor
    lengths: Tensor
    meanings: Tensor


class Captions(Texts):
    """n texts with the number of what each means, (n,) int64: two texts of one number say the same of an image. Numbers
    below that of the classes are classes."""

    kind = "with a caption each"

    def __init__(self, values: np.ndarray | Sequence[str], vocabulary: Vocabulary, meanings: np.ndarray):
        super().__init__(values, vocabulary)
        self.meanings = meanings

    def __getitem__(self, indices: Indices) -> "Captions":
        assert self.vocabulary is not None
        return Captions(self.values[indices], self.vocabulary, self.meanings[indices])

    def tobytes(self) -> bytes:
        return super().tobytes() + b"\0" + self.meanings.tobytes()

    def collate(self) -> CaptionBatch:  # type: ignore[override]  # a text's, and more
        codes, lengths = super().collate()
        return CaptionBatch(codes, lengths, torch.as_tensor(self.meanings, dtype=torch.long))
