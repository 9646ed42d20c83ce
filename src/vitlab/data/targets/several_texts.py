"""Label images with texts, several of which may be of one image.

n texts, B batch, L tokens of the longest text
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.targets.targets import Indices
from vitlab.data.targets.texts import Texts
from vitlab.vocabulary import Vocabulary


class ImageTextBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded behind their `lengths` (B,), and the image that each is of (B,)."""

    codes: Tensor
    lengths: Tensor
    images: Tensor


class SeveralTexts(Texts):
    """n texts with the number of the image that each is of, (n,) int64. A pool is divided image by image, so that all
    texts of one are in one split."""

    kind = "with several texts each"

    def __init__(self, values: np.ndarray | Sequence[str], vocabulary: Vocabulary | None, images: np.ndarray):
        super().__init__(values, vocabulary)
        self.images = images

    def __getitem__(self, indices: Indices) -> "SeveralTexts":
        return SeveralTexts(self.values[indices], self.vocabulary, self.images[indices])

    def tobytes(self) -> bytes:
        return super().tobytes() + b"\0" + self.images.tobytes()

    def collate(self) -> ImageTextBatch:  # type: ignore[override]  # a text's, and more
        codes, lengths = super().collate()
        return ImageTextBatch(codes, lengths, torch.as_tensor(self.images, dtype=torch.long))

    def divide(self, fractions: dict[str, float], random: np.random.RandomState) -> dict[str, np.ndarray]:
        _, firsts, which = np.unique(self.images, return_index=True, return_inverse=True)
        parts = Texts(self.values[firsts]).divide(fractions, random)
        return {name: np.flatnonzero(np.isin(which, part)) for name, part in parts.items()}
