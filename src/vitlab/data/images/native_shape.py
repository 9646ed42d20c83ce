"""Crops that keep the shape of an image, so that their sizes differ: a batch of them is cut into patches and padded.

B images
"""

from typing import Self

import numpy as np

from vitlab.data.images.crop import Crop, Crops, make_whole_boxes, rate
from vitlab.ranges import Length, Pixels, Share


class TokenBudget(Crop):
    """The whole image in its own shape, as large as `max_tokens` patches of `patch_size` allow, each side a multiple of
    it: NaFlex (Tschannen et al., 2025, arXiv:2502.14786, section 2.4.2), NaViT (Dehghani et al., 2023,
    arXiv:2307.06304). Never enlarged, unless `enlarge`. Flipped with probability `flip_rate`.
    """

    draws = 1

    def __init__(self, *, patch_size: Pixels, max_tokens: Length, enlarge: bool, flip_rate: Share, interpolation: str):
        if patch_size is None:
            raise ValueError("a token budget counts patches; choose a model with a patch_size")
        super().__init__(image_size=patch_size * int(max_tokens**0.5), interpolation=interpolation)
        self.patch_size = patch_size
        self.max_tokens = max_tokens
        self.enlarge = enlarge
        self.flip_rate = rate(flip_rate)
        self.exact = flip_rate == 0

    def resize(self, image_size: int) -> Self:
        other = super().resize(image_size)
        other.max_tokens = (image_size // self.patch_size) ** 2
        return other

    def output_size(self) -> None:
        return None

    def find_mixed_patch_size(self) -> int:
        return self.patch_size

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        sides = sizes / self.patch_size  # (B, 2), in patches
        factor = np.sqrt(self.max_tokens / sides.prod(axis=1, keepdims=True))
        if not self.enlarge:
            factor = np.minimum(factor, 1)
        grids = np.maximum(np.floor(sides * factor + 1e-9), 1)
        grids = np.maximum(np.minimum(grids, self.max_tokens // grids[:, ::-1]), 1)  # a long strip, one patch wide
        crops = self.crops(make_whole_boxes(sizes), flips=numbers[:, 0] < self.flip_rate)
        return crops._replace(sizes=grids.astype(int) * self.patch_size)


class LineCrop(Crop):
    """A line of writing: all of the image, `image_size` pixels high and as wide as its shape has it, a multiple of
    `patch_size` and at most `max_width`. Raises ValueError for sizes that are no multiple of the patches."""

    exact = True

    def __init__(self, *, image_size: Pixels, patch_size: Pixels, max_width: Pixels, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if patch_size is None:
            raise ValueError("a line is read in patches; choose a model with a patch_size")
        for key, size in {"image_size": image_size, "max_width": max_width}.items():
            if size < 1 or size % patch_size:
                raise ValueError(f"{key} {size} is not a multiple of patch_size {patch_size}")
        self.patch_size = patch_size
        self.max_width = max_width

    def output_size(self) -> None:
        return None

    def find_mixed_patch_size(self) -> int:
        return self.patch_size

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        crops = self.crops(make_whole_boxes(sizes))
        columns = np.round(sizes[:, 1] * self.image_size / sizes[:, 0] / self.patch_size)
        crops.sizes[:, 1] = self.patch_size * np.clip(columns, 1, self.max_width // self.patch_size)
        return crops
