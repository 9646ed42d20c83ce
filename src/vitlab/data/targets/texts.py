"""Label images with texts that are to be written.

n images, B batch, L characters of the longest text
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices, Targets
from vitlab.vocabulary import Vocabulary


class TextBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded behind their `lengths` (B,)."""

    codes: Tensor
    lengths: Tensor


def code_points(text: str) -> list[int]:
    """Give the Unicode numbers of the characters."""
    return [ord(character) for character in text]


class Texts(Targets):
    """n texts, of any length, in the tokens of a vocabulary; without one, in Unicode's numbers and zeros."""

    kind = "with a text each"

    def __init__(self, values: np.ndarray | Sequence[str], vocabulary: Vocabulary | None = None):
        super().__init__(np.asarray(values, dtype=object))
        self.vocabulary = vocabulary

    def __getitem__(self, indices: Indices) -> "Texts":
        return Texts(self.values[indices], self.vocabulary)

    def tobytes(self) -> bytes:
        return "\0".join(self.values).encode("utf-8", "surrogatepass")

    def collate(self) -> TextBatch:
        encode, fill = code_points, 0
        if self.vocabulary is not None:
            encode, fill = self.vocabulary.encode, self.vocabulary.special.padding
        encoded = [torch.tensor(encode(text), dtype=torch.long) for text in self.values]
        lengths = torch.tensor([len(codes) for codes in encoded], dtype=torch.long)
        codes = torch.empty(0, 0).long()
        if encoded:
            codes = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True, padding_value=fill)
        return TextBatch(codes, lengths)

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return str(self.values[i])
