"""Label images with texts that are to be written.

n images, B batch, L characters of the longest text
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices, Targets, share_out
from vitlab.vocabulary import Vocabulary


class TextBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded behind their `lengths` (B,)."""

    codes: Tensor
    lengths: Tensor


def code_points(text: str) -> list[int]:
    """Give the Unicode numbers of the characters."""
    return [ord(character) for character in text]


class Texts(Targets):
    """n texts, of any length, in the tokens of a vocabulary; without one, in Unicode's numbers and zeros.

    `images` number the image that each is of, (n,) int64; None: each is of another. A pool is divided image by image,
    so that all texts of one are in one split.
    """

    kind = "with a text each"

    def __init__(
        self,
        values: np.ndarray | Sequence[str],
        vocabulary: Vocabulary | None = None,
        images: np.ndarray | None = None,
    ):
        super().__init__(np.asarray(values, dtype=object))
        self.vocabulary = vocabulary
        self.images = np.arange(len(self)) if images is None else images

    def __getitem__(self, indices: Indices) -> Self:
        return type(self)(self.values[indices], self.vocabulary, self.images[indices])

    @property
    def num_images(self) -> int:
        return len(np.unique(self.images))

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

    def divide(self, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
        images, which = np.unique(self.images, return_inverse=True)
        parts = share_out(len(images), fractions, random)
        return {name: np.flatnonzero(np.isin(which, part)) for name, part in parts.items()}
