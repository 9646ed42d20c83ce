"""Read images of a split before a run begins: to measure their mean and standard deviation where a config leaves them
open, and to refuse files that cannot be read."""

from functools import partial
from typing import cast

import numpy as np

from vitlab.data.batches.batch import Sample
from vitlab.data.delivery import explain_unreadable
from vitlab.data.images.moments import compute_moments, mean_and_std
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.order.sampler import Key
from vitlab.errors import DataError

MOST, AT_ONCE = 5000, 64  # images that are measured, evenly spaced
CHECKED = 1000  # images of a split that are read only to refuse one that cannot be


def measure_colours(split: ImageSplit, num_workers: int, on_bad_image: str) -> tuple[list[float], list[float]]:
    """Measure mean and standard deviation of each channel, of values in [0, 1], over at most `MOST` images of a split
    as it crops them, rounded to 4 digits. Raises DataError where no image can be read, and as `read_spaced`."""
    moments = read_spaced(split, MOST, "measuring mean and std", num_workers, on_bad_image)
    if not moments.any():
        raise DataError(f"no image of the train split can be read, the first is {split[Key(0, 0)]}")
    mean, std = mean_and_std(moments)
    return [round(value, 4) for value in mean], [max(round(value, 4), 1e-4) for value in std]


def read_spaced(split: ImageSplit, most: int, title: str, num_workers: int, on_bad_image: str) -> np.ndarray:
    """Sum up the moments of at most so many images of a split, evenly spaced. -> (3, C). Raises DataError, with
    on_bad_image=error, for one that cannot be read."""
    places = np.unique(np.linspace(0, len(split) - 1, most).round().astype(int))
    work = partial(sum_moments, split, places, on_bad_image)
    pieces = cut(len(places), AT_ONCE)
    workers = num_workers if len(pieces) > 2 * num_workers else 0  # they take longer to start
    results = map_in_order(work, pieces, done=0, title=title, unit="images", num_workers=workers)
    return cast(np.ndarray, np.sum(list(results), axis=0))


def sum_moments(split: ImageSplit, places: np.ndarray, on_bad_image: str, piece: range) -> np.ndarray:
    """Sum up the moments of the images at some of these places. -> (3, C)"""
    moments = np.zeros((3, split.in_chans), np.int64)
    for sample in (split[Key(0, int(place))] for place in places[piece.start : piece.stop]):
        if isinstance(sample, Sample):
            moments += compute_moments(sample.image)
        elif on_bad_image == "error":
            raise explain_unreadable(sample)
    return moments
