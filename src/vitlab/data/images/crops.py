"""What part of an image is taken, at what size, and whether it is flipped: drawn before anything is decoded.

A crop is decided on the size that an image has in its source, from numbers that are a function of (seed, epoch, index).
So it is the same part of the picture whichever cache the pixels come from, and a decoder may leave out what a crop does
not need.

B images, H W image height and width, h w height and width of a crop as the model sees it
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from PIL import Image

ATTEMPTS = 10  # of a random crop to lie within the image
Range = tuple[float, float]


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

    def __init__(self, *, image_size: int, interpolation: str):
        if image_size < 1:
            raise ValueError(f"image_size {image_size} is not at least 1")
        if interpolation.upper() not in Image.Resampling.__members__:
            names = ", ".join(name.lower() for name in Image.Resampling.__members__)
            raise ValueError(f"interpolation '{interpolation}' is not one of: {names}")
        self.image_size = image_size
        self.interpolation = interpolation.lower()

    def at(self, image_size: int) -> Self:
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

    def mixed_patch_size(self) -> int | None:
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


class WholeImage(Crop):
    """All of the image, squeezed into a square."""

    exact = True

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        return self.crops(whole(sizes))


class CenterCrop(Crop):
    """The shorter side is resized to `resize_size` pixels, and the central square of `image_size` is cut out, in one
    step. The very pixels of torchvision's Resize and CenterCrop on a Pillow image.

    Raises ValueError where the square is larger than the resized image.
    """

    exact = True

    def __init__(self, *, image_size: int, resize_size: int, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if resize_size < image_size:
            raise ValueError(f"resize_size {resize_size} of the shorter side is less than the crop of {image_size}")
        self.resize_size = resize_size

    def at(self, image_size: int) -> Self:
        other = super().at(image_size)
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

    def __init__(self, *, image_size: int, padding: int, flip_rate: float, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if not 0 <= padding < image_size:
            raise ValueError(f"padding {padding} is not in [0, image_size)")
        self.padding = padding
        self.flip_rate = rate(flip_rate)

    def at(self, image_size: int) -> Self:
        other = super().at(image_size)
        other.padding = round(self.padding * image_size / self.image_size)
        return other

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        shifts = integers(numbers[:, :2], 2 * self.padding + 1) - self.padding
        return self.crops(whole(sizes), shifts=shifts, flips=numbers[:, 2] < self.flip_rate)


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
        image_size: int,
        scale: Sequence[float],
        ratio: Sequence[float],
        method: str,
        flip_rate: float,
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
    area = between(first, *scale) * H * W  # (B, attempts)
    shape = np.exp(between(second, *np.log(ratio)))
    height, width = np.round(np.sqrt(area / shape)), np.round(np.sqrt(area * shape))
    fits = (height > 0) & (height <= H) & (width > 0) & (width <= W)
    extent = first_of(fits, height, width)
    corner = integers(place, sizes - extent + 1)
    shape = np.clip(sizes[:, 1] / sizes[:, 0], *ratio)  # of the central box
    central = np.round(np.minimum(sizes, np.stack([sizes[:, 1] / shape, sizes[:, 0] * shape], axis=1)))
    never = ~fits.any(axis=1, keepdims=True)
    return boxes_of(np.where(never, (sizes - central) // 2, corner), np.where(never, central, extent))


def inception_boxes(sizes: np.ndarray, numbers: np.ndarray, scale: Range, ratio: Range) -> np.ndarray:
    """Draw boxes as TensorFlow does. Sizes (B, 2) and uniform numbers (B, 2·attempts + 2) -> (B, 4)"""
    H, W = sizes.T[:, :, None]
    first, second, place = np.split(numbers, [ATTEMPTS, 2 * ATTEMPTS], axis=1)
    least, most = scale[0] * H * W, scale[1] * H * W
    shape = between(first, *ratio)  # (B, attempts)
    highest = np.minimum(np.minimum(np.round(np.sqrt(most / shape)), np.floor((W + 0.499) / shape)), H)
    lowest = np.minimum(np.round(np.sqrt(least / shape)), highest)
    height = lowest + integers(second, highest - lowest + 1)
    height += np.round(height * shape) * height < least  # rounding may cost a pixel
    height -= np.round(height * shape) * height > most
    width = np.round(height * shape)
    area = height * width
    fits = (least <= area) & (area <= most) & (width > 0) & (width <= W) & (height <= H)
    extent = np.where(fits.any(axis=1, keepdims=True), first_of(fits, height, width), sizes)
    return boxes_of(integers(place, np.maximum(sizes - extent, 1)), extent)


METHODS = {"torchvision": torchvision_boxes, "inception": inception_boxes}


class TokenBudget(Crop):
    """The whole image in its own shape, as large as `max_tokens` patches of `patch_size` allow, each side a multiple of
    it: NaFlex (Tschannen et al., 2025, arXiv:2502.14786, section 2.4.2), NaViT (Dehghani et al., 2023,
    arXiv:2307.06304). Never enlarged, unless `enlarge`. Flipped with probability `flip_rate`.
    """

    draws = 1

    def __init__(self, *, patch_size: int, max_tokens: int, enlarge: bool, flip_rate: float, interpolation: str):
        if patch_size is None or patch_size < 1:
            raise ValueError("a token budget is counted in patches; choose a model with a patch_size")
        if max_tokens < 1:
            raise ValueError(f"max_tokens {max_tokens} is not at least 1")
        super().__init__(image_size=patch_size * int(max_tokens**0.5), interpolation=interpolation)
        self.patch_size = patch_size
        self.max_tokens = max_tokens
        self.enlarge = enlarge
        self.flip_rate = rate(flip_rate)
        self.exact = flip_rate == 0

    def at(self, image_size: int) -> Self:
        other = super().at(image_size)
        other.max_tokens = (image_size // self.patch_size) ** 2
        return other

    def output_size(self) -> None:
        return None

    def mixed_patch_size(self) -> int:
        return self.patch_size

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        sides = sizes / self.patch_size  # (B, 2), in patches
        factor = np.sqrt(self.max_tokens / sides.prod(axis=1, keepdims=True))
        if not self.enlarge:
            factor = np.minimum(factor, 1)
        grids = np.maximum(np.floor(sides * factor + 1e-9), 1)
        grids = np.maximum(np.minimum(grids, self.max_tokens // grids[:, ::-1]), 1)  # a long strip, one patch wide
        crops = self.crops(whole(sizes), flips=numbers[:, 0] < self.flip_rate)
        return crops._replace(sizes=grids.astype(int) * self.patch_size)


class LineCrop(Crop):
    """A line of writing: all of the image, `image_size` pixels high and as wide as its shape has it, a multiple of
    `patch_size` and at most `max_width`. Raises ValueError for sizes that are no multiple of the patches."""

    exact = True

    def __init__(self, *, image_size: int, patch_size: int, max_width: int, interpolation: str):
        super().__init__(image_size=image_size, interpolation=interpolation)
        if patch_size is None or patch_size < 1:
            raise ValueError("a line is read in patches; choose a model with a patch_size")
        for key, size in {"image_size": image_size, "max_width": max_width}.items():
            if size < 1 or size % patch_size:
                raise ValueError(f"{key} {size} is not a multiple of patch_size {patch_size}")
        self.patch_size = patch_size
        self.max_width = max_width

    def output_size(self) -> None:
        return None

    def mixed_patch_size(self) -> int:
        return self.patch_size

    def __call__(self, sizes: np.ndarray, numbers: np.ndarray) -> Crops:
        crops = self.crops(whole(sizes))
        columns = np.round(sizes[:, 1] * self.image_size / sizes[:, 0] / self.patch_size)
        crops.sizes[:, 1] = self.patch_size * np.clip(columns, 1, self.max_width // self.patch_size)
        return crops


class MultiCrop(Crop):
    """Several views of an image, `num_large` by one crop and `num_small` by another: multi-crop (Caron et al., 2020,
    arXiv:2006.09882, section 3.2). Raises ValueError without a large one, or with small ones that are larger."""

    def __init__(self, *, large: Crop, num_large: int, small: Crop, num_small: int):
        if num_large < 1 or num_small < 0:
            raise ValueError(f"num_large {num_large} is not at least 1, or num_small {num_small} not at least 0")
        if num_small and small.image_size > large.image_size:
            raise ValueError(f"small.image_size {small.image_size} is above large.image_size {large.image_size}")
        super().__init__(image_size=large.image_size, interpolation=large.interpolation)
        self.large, self.num_large, self.small, self.num_small = large, num_large, small, num_small

    def views(self) -> Sequence[Crop]:
        return (self.large,) * self.num_large + (self.small,) * self.num_small

    def output_size(self) -> tuple[int, int] | None:
        return self.large.output_size()

    def at(self, image_size: int) -> Self:
        other = super().at(image_size)
        other.large = self.large.at(image_size)
        other.small = self.small.at(round(self.small.image_size * image_size / self.image_size))
        return other


def whole(sizes: np.ndarray) -> np.ndarray:
    """Give the boxes (B, 4) of whole images (B, 2)."""
    return boxes_of(np.zeros_like(sizes), sizes)


def boxes_of(corner: np.ndarray, extent: np.ndarray) -> np.ndarray:
    """Turn top left corners (B, 2), row first, and heights and widths (B, 2) into boxes (B, 4)."""
    return np.concatenate([corner[:, ::-1], (corner + extent)[:, ::-1]], axis=1).astype(float)


def first_of(fits: np.ndarray, height: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Choose the first attempt that fits, of (B, attempts): its height and width (B, 2)."""
    chosen = fits.argmax(axis=1)[:, None]
    return np.concatenate([np.take_along_axis(side, chosen, axis=1) for side in (height, width)], axis=1)


def between(numbers: np.ndarray, least: float, most: float) -> np.ndarray:
    """Stretch numbers in [0, 1) over a range."""
    return least + numbers * (most - least)


def integers(numbers: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Turn numbers in [0, 1) into integers in [0, count)."""
    return np.floor(numbers * count).astype(int)


def rate(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"flip_rate {value} is not a probability")
    return value
