"""Give each split of computed data its own digits and things, from random numbers that are always the same.

n things of a split
"""

from collections.abc import Iterator

import numpy as np

from vitlab.data.pools.split_names import SPLITS
from vitlab.data.pools.splits import divide
from vitlab.data.sources.digits import Digits
from vitlab.seeding import draw_numbers

VAL, TEST = 0.1, 0.2  # shares of the digits and of the things, so that no split has one of another's


def load_split_digits() -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield each split with its pictures of the digits from 0 to 9, (m, 8, 8) uint8 each: its own writers."""
    for split, (pool, places) in divide(Digits().open(), VAL, TEST).items():
        assert pool.pixels is not None
        classes = pool.targets.values[places]
        yield split, [pool.pixels[places[classes == k]] for k in range(10)]


def draw_fixed_numbers(purpose: str, split: str, n: int, count: int) -> np.ndarray:
    """Return random numbers (n, count) in [0, 1), the same for each call with this purpose and split."""
    counters = np.stack([np.full(n, SPLITS.index(split)), np.arange(n)], axis=1)
    return draw_numbers(purpose, counters, count)


def is_in_split(split: str, purpose: str, things: np.ndarray) -> np.ndarray:
    """Tell which of some things, rows of whole numbers (k, ...), a split has, (k,) bool: each belongs to one split."""
    number = draw_numbers(purpose, things, 1)[:, 0]
    own: np.ndarray = np.digitize(number, (VAL, VAL + TEST)) == ("val", "test", "train").index(split)
    return own
