"""Resize a box of an image with antialiasing: by torch, or by Pillow where it has to be exact.

H W height and width, C channels, h w those of the result
"""

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitlab.data.images.decoding import Pixels

BY_TORCH = ("bilinear", "bicubic")  # a third to a seventh of Pillow's time, and within 1 of its values
MOST_AROUND = 64  # times the area of a window that an image may be resized to, to cut the window out


def resample(pixels: Pixels, box: np.ndarray, size: tuple[int, int], interpolation: str, exact: bool) -> Tensor:
    """Resize `box` (4,): left, top, right, bottom, to `size` (h, w). -> uint8 (C, h, w)

    `exact`: by Pillow, and the box is a window of the resized image. Otherwise the box is rounded to whole pixels, at
    least one, and what lies outside does not enter the result.
    """
    if exact and is_pillow_image(pixels):
        return window(make_image(pixels), box, size, interpolation)
    height, width = extent(pixels)
    left, top = (int(min(round(float(near)), limit - 1)) for near, limit in zip(box[:2], (width, height), strict=True))
    right = int(max(min(round(float(box[2])), width), left + 1))
    bottom = int(max(min(round(float(box[3])), height), top + 1))
    if (bottom - top, right - left) != size and interpolation not in BY_TORCH and is_pillow_image(pixels):
        return resize(make_image(pixels).crop((left, top, right, bottom)), size, interpolation)
    if isinstance(pixels, Image.Image):
        image = make_tensor(pixels.crop((left, top, right, bottom)))
    else:
        image = make_tensor(pixels[top:bottom, left:right])
    if image.shape[1:] == size:
        return image
    mode = interpolation if interpolation in BY_TORCH else "bicubic"
    return F.interpolate(image[None], size=size, mode=mode, antialias=True)[0]


def window(image: Image.Image, box: np.ndarray, size: tuple[int, int], interpolation: str) -> Tensor:
    """Resize the whole image and then crop it, as torchvision does: Pillow's own box gives other last digits."""
    (h, w), (left, top, right, bottom) = size, box.tolist()
    across, down = w / (right - left), h / (bottom - top)
    height, width = round(image.height * down), round(image.width * across)
    if height * width > MOST_AROUND * h * w:  # a long strip, of which only the middle is wanted
        return resize(image, size, interpolation, (left, top, right, bottom))
    x, y = round(left * across), round(top * down)
    return resize(image, (height, width), interpolation)[:, y : y + h, x : x + w]


def resize(
    image: Image.Image,
    size: tuple[int, int],
    interpolation: str,
    box: tuple[float, float, float, float] | None = None,
) -> Tensor:
    """Resize by Pillow. -> uint8 (C, h, w)"""
    if box is None and image.size == size[::-1]:
        return make_tensor(image)
    return make_tensor(image.resize(size[::-1], Image.Resampling[interpolation.upper()], box=box))


def is_pillow_image(pixels: Pixels) -> bool:
    """Whether Pillow can hold the image: 1, 3 or 4 channels."""
    return isinstance(pixels, Image.Image) or pixels.ndim == 2 or pixels.shape[2] in (1, 3, 4)


def extent(pixels: Pixels) -> tuple[int, int]:
    """Give height and width."""
    return (pixels.height, pixels.width) if isinstance(pixels, Image.Image) else (pixels.shape[0], pixels.shape[1])


def make_image(pixels: Pixels) -> Image.Image:
    if isinstance(pixels, Image.Image):
        return pixels
    plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return Image.fromarray(np.ascontiguousarray(plain))


def make_tensor(pixels: Pixels) -> Tensor:
    """Convert to uint8 (C, H, W)."""
    array = np.require(np.asarray(pixels), requirements="W")
    image = torch.from_numpy(array)
    return image[None] if image.ndim == 2 else image.permute(2, 0, 1)
