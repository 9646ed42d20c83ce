"""Measure mean and standard deviation of the training images where a config leaves them open."""

from functools import partial

import numpy as np

from vitlab.data.batches.batch import Sample
from vitlab.data.images.moments import compute_moments, mean_and_std
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.order.sampler import Key
from vitlab.errors import DataError

MOST, AT_ONCE = 5000, 64  # images that are measured, evenly spaced


def measure_colours(split: ImageSplit, num_workers: int) -> tuple[list[float], list[float]]:
    """Measure mean and standard deviation of each channel, of values in [0, 1], over at most `MOST` images of a split
    as it crops them, rounded to 4 digits. Raises DataError where no image can be read."""
    places = np.unique(np.linspace(0, len(split) - 1, MOST).round().astype(int))
    work = partial(sum_moments, split, places)
    pieces = cut(len(places), AT_ONCE)
    workers = num_workers if len(pieces) > 2 * num_workers else 0  # they take longer to start
    results = map_in_order(work, pieces, done=0, title="measuring mean and std", unit="images", num_workers=workers)
    moments = np.sum(list(results), axis=0)
    if not moments.any():
        raise DataError(f"no image of the train split can be read, the first is {split[Key(0, 0)]}")
    mean, std = mean_and_std(moments)
    return [round(value, 4) for value in mean], [max(round(value, 4), 1e-4) for value in std]


def sum_moments(split: ImageSplit, places: np.ndarray, piece: range) -> np.ndarray:
    """Sum up the moments of the images at some of these places. -> (3, C)"""
    samples = (split[Key(0, int(place))] for place in places[piece.start : piece.stop])
    zeros = np.zeros((3, split.in_chans), np.int64)
    return sum((compute_moments(sample.image) for sample in samples if isinstance(sample, Sample)), zeros)
