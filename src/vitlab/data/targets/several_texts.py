"""Label images with texts, several of which may be of one image.

n texts, B batch, L tokens of the longest text
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.data.targets.texts import Texts


class ImageTextBatch(NamedTuple):
    """Token numbers of the texts, (B, L), padded behind their `lengths` (B,), and the image that each is of (B,)."""

    codes: Tensor
    lengths: Tensor
    images: Tensor


class SeveralTexts(Texts):
    """n texts, several of which are of one image; a batch says which."""

    kind = "with several texts each"

    def tobytes(self) -> bytes:
        return super().tobytes() + b"\0" + self.images.tobytes()

    def collate(self) -> ImageTextBatch:  # type: ignore[override]  # a text's, and more
        codes, lengths = super().collate()
        return ImageTextBatch(codes, lengths, torch.as_tensor(self.images, dtype=torch.long))
