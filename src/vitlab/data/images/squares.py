"""Crops that show all of an image, or its middle, as a square.

B images
"""

from typing import Self

import numpy as np

from vitlab.data.images.crop import Crop, Crops, integers, make_whole_boxes, rate
from vitlab.ranges import Natural, Pixels, Share


class WholeImage(Crop):
    """All of the image, squeezed into a square."""

    exact = True

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        return self.crops(make_whole_boxes(sizes))


class CenterCrop(Crop):
    """The shorter side is resized to `resize_size` pixels, and the central square of `image_size` is cut out, in one
    step. The very pixels of torchvision's Resize and CenterCrop on a Pillow image.

    Raises ValueError where the square is larger than the resized image.
    """

    exact = True

    def __init__(self, *, image_size: Pixels, resize_size: Pixels, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if resize_size < image_size:
            raise ValueError(f"resize_size {resize_size} of the shorter side is less than the crop of {image_size}")
        self.resize_size = resize_size

    def resize(self, image_size: int) -> Self:
        other = super().resize(image_size)
        other.resize_size = round(self.resize_size * image_size / self.image_size)
        return other

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        shorter = sizes.min(axis=1, keepdims=True)
        resized = np.where(sizes == shorter, self.resize_size, (self.resize_size * sizes / shorter).astype(int))
        corner = np.round((resized - self.image_size) / 2)  # half to even, as Python rounds
        top, left = (corner * sizes / resized).T
        bottom, right = ((corner + self.image_size) * sizes / resized).T
        return self.crops(np.stack([left, top, right, bottom], axis=1))


class ShiftedCrop(Crop):
    """All of the image, moved by up to `padding` pixels of the result in both directions: torchvision's RandomCrop with
    padding. Flipped with probability `flip_rate`."""

    draws = 3

    def __init__(self, *, image_size: Pixels, padding: Natural, flip_rate: Share, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if not 0 <= padding < image_size:
            raise ValueError(f"padding {padding} is not at least 0 and less than image_size")
        self.padding = padding
        self.flip_rate = rate(flip_rate)

    def resize(self, image_size: int) -> Self:
        other = super().resize(image_size)
        other.padding = round(self.padding * image_size / self.image_size)
        return other

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        shifts = integers(numbers[:, :2], 2 * self.padding + 1) - self.padding
        return self.crops(make_whole_boxes(sizes), shifts=shifts, flips=numbers[:, 2] < self.flip_rate)
