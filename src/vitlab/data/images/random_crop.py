"""A part of an image of random size, shape and place.

B images, H W image height and width
"""

from collections.abc import Sequence

import numpy as np

from vitlab.data.images.crop import Crop, Crops, integers, make_boxes, rate
from vitlab.ranges import Pixels, Positive, Share

ATTEMPTS = 10  # tries to find a random crop that lies within the image
Range = tuple[float, float]


class RandomResizedCrop(Crop):
    """A box of random area, shape and place (Szegedy et al., 2015, arXiv:1409.4842, section 6), resized to a square.

    `scale` is the range of its share of the area, `ratio` that of width to height. Two published ways to draw it, the
    first of ten that fits: "torchvision" draws the area evenly, and the logarithm of the ratio; where none fits it
    takes the largest central box of a permitted ratio. "inception" (TensorFlow's sample_distorted_bounding_box, which
    the ViT authors use) draws the ratio evenly, then the height evenly among those that fit: small boxes come more
    often; where none fits it takes the whole image. Flipped with probability `flip_rate`. Raises ValueError for a range
    that is none.
    """

    draws = 2 * ATTEMPTS + 3

    def __init__(
        self,
        *,
        image_size: Pixels,
        scale: Sequence[Positive],
        ratio: Sequence[Positive],
        method: str,
        flip_rate: Share,
        interpolation: str,
    ):
        super().__init__(image_size=image_size, interpolation=interpolation)
        for key, limits in {"scale": scale, "ratio": ratio}.items():
            if len(limits) != 2 or not 0 < limits[0] <= limits[1]:
                raise ValueError(f"{key} {list(limits)} is not a range of two numbers above 0, the smaller first")
        if scale[1] > 1:
            raise ValueError(f"scale {list(scale)} is more than the whole image, 1.0")
        if method not in METHODS:
            raise ValueError(f"method '{method}' of a random crop is not one of: {', '.join(METHODS)}")
        self.scale = (scale[0], scale[1])
        self.ratio = (ratio[0], ratio[1])
        self.method = METHODS[method]
        self.flip_rate = rate(flip_rate)

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        boxes = self.method(sizes, numbers[:, :-1], self.scale, self.ratio)
        return self.crops(boxes, flips=numbers[:, -1] < self.flip_rate)


def torchvision_boxes(sizes: np.ndarray, numbers: np.ndarray, scale: Range, ratio: Range) -> np.ndarray:
    """Draw boxes as torchvision does. Sizes (B, 2) and uniform numbers (B, 2·attempts + 2) -> (B, 4)"""
    H, W = sizes.T[:, :, None]  # (B, 1) each
    first, second, place = np.split(numbers, [ATTEMPTS, 2 * ATTEMPTS], axis=1)
    area = scale_numbers(first, *scale) * H * W  # (B, attempts)
    shape = np.exp(scale_numbers(second, *np.log(ratio)))
    height, width = np.round(np.sqrt(area / shape)), np.round(np.sqrt(area * shape))
    fits = (height > 0) & (height <= H) & (width > 0) & (width <= W)
    extent = choose_first(fits, height, width)
    corner = integers(place, sizes - extent + 1)
    shape = np.clip(sizes[:, 1] / sizes[:, 0], *ratio)  # shape of the central box
    central = np.round(np.minimum(sizes, np.stack([sizes[:, 1] / shape, sizes[:, 0] * shape], axis=1)))
    never = ~fits.any(axis=1, keepdims=True)
    return make_boxes(np.where(never, (sizes - central) // 2, corner), np.where(never, central, extent))


def inception_boxes(sizes: np.ndarray, numbers: np.ndarray, scale: Range, ratio: Range) -> np.ndarray:
    """Draw boxes as TensorFlow does. Sizes (B, 2) and uniform numbers (B, 2·attempts + 2) -> (B, 4)"""
    H, W = sizes.T[:, :, None]
    first, second, place = np.split(numbers, [ATTEMPTS, 2 * ATTEMPTS], axis=1)
    least, most = scale[0] * H * W, scale[1] * H * W
    shape = scale_numbers(first, *ratio)  # (B, attempts)
    highest = np.minimum(np.minimum(np.round(np.sqrt(most / shape)), np.floor((W + 0.499) / shape)), H)
    lowest = np.minimum(np.round(np.sqrt(least / shape)), highest)
    height = lowest + integers(second, highest - lowest + 1)
    height += np.round(height * shape) * height < least  # rounding may cost a pixel
    height -= np.round(height * shape) * height > most
    width = np.round(height * shape)
    area = height * width
    fits = (least <= area) & (area <= most) & (width > 0) & (width <= W) & (height <= H)
    extent = np.where(fits.any(axis=1, keepdims=True), choose_first(fits, height, width), sizes)
    return make_boxes(integers(place, np.maximum(sizes - extent, 1)), extent)


def choose_first(fits: np.ndarray, height: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Choose the first attempt that fits, of (B, attempts): its height and width (B, 2)."""
    chosen = fits.argmax(axis=1)[:, None]
    return np.concatenate([np.take_along_axis(side, chosen, axis=1) for side in (height, width)], axis=1)


def scale_numbers(numbers: np.ndarray, least: float, most: float) -> np.ndarray:
    """Stretch numbers in [0, 1) over a range."""
    return least + numbers * (most - least)


METHODS = {"torchvision": torchvision_boxes, "inception": inception_boxes}
