"""What part of an image is taken, at what size, and whether it is flipped: decided before anything is decoded.

A crop is decided on the size that an image has in its source, from numbers that are a function of (seed, epoch, index).
So it is the same part of the picture whichever cache the pixels come from, and a decoder may leave out what a crop does
not need.

B images, H W image height and width, h w height and width of a crop as the model sees it
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple, Self, cast

import numpy as np
from PIL import Image

from vitlab.ranges import Pixels


class Crops(NamedTuple):
    """`boxes` (B, 4) float: left, top, right, bottom, in pixels of the source. `sizes` (B, 2) int: height and width
    that a box is resized to; `shifts` (B, 2) int: pixels by which it then moves down and right, zeros moving in;
    `flips` (B,) bool: left and right are swapped at the end.
    """

    boxes: np.ndarray
    sizes: np.ndarray
    shifts: np.ndarray
    flips: np.ndarray


class Crop:
    """`draws` numbers, uniform in [0, 1), decide about an image. `exact`: the box is kept to a fraction of a pixel, and
    pixels come from full resolution; otherwise it may be rounded, and JPEGs be decoded at half of it.

    Called with sizes (B, 2), height and width of each source image, and numbers (B, draws).
    """

    draws = 0
    exact = False

    def __init__(self, *, image_size: Pixels, interpolation: str):
        if interpolation.upper() not in Image.Resampling.__members__:
            names = ", ".join(name.lower() for name in Image.Resampling.__members__)
            raise ValueError(f"interpolation '{interpolation}' is not one of: {names}")
        self.image_size = image_size
        self.interpolation = interpolation.lower()

    def resize(self, image_size: int) -> Self:
        """Copy the crop for another size, everything in proportion."""
        other = copy.copy(self)
        other.image_size = image_size
        return other

    def output_size(self) -> tuple[int, int] | None:
        """Give the height and width of its results; None where they differ from image to image."""
        return self.image_size, self.image_size

    def views(self) -> Sequence["Crop"]:
        """Give the crops that are taken of each image."""
        return (self,)

    def find_mixed_patch_size(self) -> int | None:
        """Give the patch size that a batch of different sizes is cut by; None where all images have one size."""
        return None

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        raise NotImplementedError

    def crops(self, boxes: np.ndarray, shifts: np.ndarray | None = None, flips: np.ndarray | None = None) -> Crops:
        """Take these boxes, at `image_size`."""
        B = len(boxes)
        return Crops(
            boxes=boxes,
            sizes=np.full((B, 2), self.image_size),
            shifts=np.zeros((B, 2), dtype=int) if shifts is None else shifts,
            flips=np.zeros(B, dtype=bool) if flips is None else flips,
        )


def make_whole_boxes(sizes: np.ndarray) -> np.ndarray:
    """Give the boxes (B, 4) of whole images (B, 2)."""
    return make_boxes(np.zeros_like(sizes), sizes)


def make_boxes(corner: np.ndarray, extent: np.ndarray) -> np.ndarray:
    """Turn top left corners (B, 2), row first, and heights and widths (B, 2) into boxes (B, 4)."""
    return np.concatenate([corner[:, ::-1], (corner + extent)[:, ::-1]], axis=1).astype(float)


def integers(numbers: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Turn numbers in [0, 1) into integers in [0, count)."""
    return cast(np.ndarray, np.floor(numbers * count).astype(int))


def rate(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"flip_rate {value} is not a number from 0 to 1")
    return value
