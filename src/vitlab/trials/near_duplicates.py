"""Find images of one split that are nearly the same as one of another split: compressed or resized anew, or brightened.

n, m images, S pixels of a side
"""

import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.glance import shrink_images
from vitlab.data.loading.dataset import ImageSplit

SIDE = 16  # pixels of a side of the small gray copies that are compared
ALIKE = 2.5  # of 255 levels, root mean square: a copy saved as JPEG of quality 75 differs by about one
FLAT = 8.0  # standard deviation in levels, below which an image shows too little to be compared
AT_ONCE = 64  # images that are read between two looks at the clock
ROWS = 1024  # of the table of distances that is computed at once


class NearDuplicates(NamedTuple):
    """How many of the `compared` images of a later split are nearly the same as one of the `known` training images."""

    found: int
    compared: int
    known: int


def count_near_duplicates(train: ImageSplit, later: ImageSplit, seconds: float) -> NearDuplicates:
    """Compare small copies of as many images as can be read in so many seconds, drawn from all over each split."""
    known, asked = shrink_split(train, seconds / 2), shrink_split(later, seconds / 2)
    return NearDuplicates(int(is_near(asked, known).sum()), len(asked), len(known))


def shrink_split(split: ImageSplit, seconds: float) -> Tensor:
    """Read small gray copies of the images of a split, until the time is over. -> (n, S * S) float32"""
    order = np.random.RandomState(0).permutation(split.indices)
    end, parts = time.monotonic() + seconds, []
    for begin in range(0, len(order), AT_ONCE):
        parts.append(shrink_images(split.pool, order[begin : begin + AT_ONCE], SIDE)[0])
        if time.monotonic() > end:
            break
    return torch.cat(parts).flatten(1).float()


def is_near(asked: Tensor, known: Tensor) -> Tensor:
    """Say which images (m, S * S) are nearly one of those known (n, S * S). -> (m,) bool"""
    near = torch.zeros(len(asked), dtype=torch.bool)
    if not len(known):
        return near
    squares = known.square().sum(dim=1)
    for begin in range(0, len(asked), ROWS):
        some = asked[begin : begin + ROWS]
        distances = some.square().sum(dim=1, keepdim=True) + squares - 2 * some @ known.T
        near[begin : begin + ROWS] = distances.amin(dim=1) <= ALIKE**2 * known.shape[1]
    return near & (asked.std(dim=1) >= FLAT)
