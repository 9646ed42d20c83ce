"""Label images with texts that are to be written.

n images, B batch, L characters of the longest text
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices, Targets


class TextBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded with zeros behind their `lengths` (B,)."""

    codes: Tensor
    lengths: Tensor


def code_points(text: str) -> list[int]:
    """Give the Unicode numbers of the characters."""
    return [ord(character) for character in text]


class Texts(Targets):
    """n texts, of any length. `encode` turns one into numbers."""

    kind = "with a text each"

    def __init__(self, values: np.ndarray | Sequence[str], encode: Callable[[str], Sequence[int]] = code_points):
        super().__init__(np.asarray(values, dtype=object))
        self.encode = encode

    def __getitem__(self, indices: Indices) -> "Texts":
        return Texts(self.values[indices], self.encode)

    def tobytes(self) -> bytes:
        return "\0".join(self.values).encode("utf-8", "surrogatepass")

    def collate(self) -> TextBatch:
        encoded = [torch.tensor(self.encode(text), dtype=torch.long) for text in self.values]
        lengths = torch.tensor([len(codes) for codes in encoded], dtype=torch.long)
        codes = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True) if encoded else torch.empty(0, 0).long()
        return TextBatch(codes, lengths)

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return str(self.values[i])
