"""Glance at some images of a data set: how large they are, whether any has colours, and small copies of them.

n images, S pixels of a side
"""

from io import BytesIO
from typing import NamedTuple, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitlab.data.images.decoding import DAMAGE, open_image
from vitlab.data.images.squares import WholeImage
from vitlab.data.loading.dataset import crop_for_evaluation
from vitlab.data.pools.pool import Pool, Stored
from vitlab.errors import DataError

MOST = 500  # images that are looked at, evenly spaced
GRAY = {"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"}  # Pillow's gray modes


class ImageSummary(NamedTuple):
    """The median of the shorter sides in pixels, and whether every image is gray."""

    side: int
    gray: bool


def glance(pool: Pool, indices: np.ndarray) -> ImageSummary:
    """Read the headers of at most `MOST` images. Raises DataError where no image can be read."""
    sides, gray, bad = [], True, []
    for i in choose_spaced(indices, MOST):
        try:
            stored = pool.load(int(i))
            sides.append(min(open_image(stored, None).size))
            gray = gray and is_gray(stored)
        except DAMAGE as error:
            bad.append(f"{pool.name(int(i))}: {error}")
    if not sides:
        raise DataError(f"no image of the train split can be read, the first is {bad[0]}")
    return ImageSummary(int(np.median(sides)), gray)


def is_gray(stored: Stored) -> bool:
    if isinstance(stored, np.ndarray):
        return stored.ndim == 2 or stored.shape[2] == 1
    return Image.open(BytesIO(stored)).mode in GRAY


def shrink_images(pool: Pool, indices: np.ndarray, side: int) -> tuple[Tensor, np.ndarray]:
    """Squeeze images into gray squares (n, S, S), and give the places in the pool of those that can be read."""
    crop, images, places = WholeImage(image_size=side, interpolation="bilinear"), [], []
    for i in indices.tolist():
        try:
            images.append(crop_for_evaluation(pool.load(i), crop, "L")[0])
            places.append(i)
        except DAMAGE:
            continue
    return torch.stack(images) if images else torch.empty(0, side, side), np.array(places, dtype=int)


def choose_spaced(indices: np.ndarray, most: int) -> np.ndarray:
    """Choose up to that many of the indices, evenly spaced."""
    return cast(np.ndarray, indices[np.unique(np.linspace(0, len(indices) - 1, most).round().astype(int))])
