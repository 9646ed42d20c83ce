"""Order the samples as a pure function of (seed, step), and cut them into batches for one rank.

n samples of a split, B global batch, K classes
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from vitlab.errors import ConfigError
from vitlab.ranges import Count, Share
from vitlab.seeding import make_seed


class Key(NamedTuple):
    """All that the augmentation of a sample depends on, besides the seed. `view` numbers the repetitions of an image in
    one epoch; `image_size` is the size of the crop, 0: the crop's own."""

    epoch: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which a key has no use for
    view: int = 0
    image_size: int = 0


@dataclass(kw_only=True)
class Order:
    """Choose which samples come when, besides the seed.

    `class_balance`: 1: each class comes as often as the others; 0.5: half way (square root); 0: as often as it has
    samples. `repeats`: times an image stands in a batch, augmented differently. `shuffle_window`: shards whose samples
    are shuffled together; None: all. Raises ConfigError for the first and last together.
    """

    class_balance: Share
    repeats: Count
    shuffle_window: Count | None

    def __post_init__(self) -> None:
        if self.class_balance and self.shuffle_window is not None:
            raise ConfigError(
                f"data.order.class_balance {self.class_balance} draws from all shards, not from the few of "
                f"data.order.shuffle_window {self.shuffle_window}; set class_balance to 0, or shuffle_window to null"
            )


@dataclass(eq=False)
class TrainingOrder:
    """Batches of keys for one rank, from the optimizer step that `position()` gives when iteration starts.

    Epoch e is a permutation of the n samples seeded by (seed, e). Its first steps_per_epoch · B entries are trained on;
    the tail, another one each epoch, is left out. A step's global batch is cut into `accumulation` micro-batches, and
    each of these into a piece for every rank, so that all ranks together take the same samples at the same step however
    many they are.

    `class_balance` b above 0, with the class of each sample in `classes` (n,), gives each class another share of the n
    places of an epoch (see `class_shares`). The classes' turns are shuffled; a class's samples come in the order of the
    permutation, over and over: none comes a third time before all came twice.

    `groups` (n,) numbers the shard of each sample: with a `window`, that many shards, drawn at random, are shuffled
    together before the next ones come, so that few are read at a time. `repeats` takes each sample that many times,
    with another augmentation each, and an epoch holds as many samples fewer (repeated augmentation: Hoffer et al.,
    2020, arXiv:1901.09335); a step's first views all come before its second ones, and so on, as mixing pairs
    neighbours. `image_size` gives the size of the crops of a step, 0: the crop's own.
    """

    num_samples: int
    _: KW_ONLY
    global_batch_size: int
    accumulation: int
    rank: int
    world_size: int
    seed: int
    position: Callable[[], int]
    groups: np.ndarray | None = None
    window: int | None = None
    repeats: int = 1
    classes: np.ndarray | None = None
    class_balance: float = 0.0
    image_size: Callable[[int], int] = lambda step: 0

    @property
    def steps_per_epoch(self) -> int:
        return self.num_samples // self.global_batch_size

    def __len__(self) -> int:
        """Count the micro-batches of a whole epoch."""
        return self.steps_per_epoch * self.accumulation

    def permutation(self, epoch: int) -> np.ndarray:
        """Give the order of an epoch, (n,): all samples once, unless classes are balanced."""
        random = np.random.default_rng(make_seed("order", self.seed, epoch))
        order = random.permutation(self.num_samples)
        if self.class_balance and self.classes is not None:
            return balance_order(order, self.classes, self.class_balance, random)
        if self.groups is None or self.window is None:
            return order
        shards, shard = np.unique(self.groups, return_inverse=True)
        turn = random.permutation(len(shards)) // self.window  # in which window a shard's turn comes
        return order[np.argsort(turn[shard[order]], kind="stable")]

    def __iter__(self) -> Iterator[list[Key]]:
        """Yield as many micro-batches as an epoch has, from `position()` on, into the next epoch if need be."""
        start = self.position()
        for step in range(start, start + self.steps_per_epoch):
            epoch, first = divmod(step, self.steps_per_epoch)
            if step == start or first == 0:
                order = self.permutation(epoch)
            places = np.arange(first * self.global_batch_size, (first + 1) * self.global_batch_size)
            places = places[np.argsort(places % self.repeats, kind="stable")]  # view after view
            size = self.image_size(step)
            for micro_batch in places.reshape(self.accumulation, self.world_size, -1):
                indices, views = np.divmod(micro_batch[self.rank], self.repeats)
                yield [Key(epoch, i, v, size) for i, v in zip(order[indices].tolist(), views.tolist(), strict=True)]


def class_shares(counts: np.ndarray, class_balance: float) -> np.ndarray:
    """Count the places of each class among the n of an epoch, (K,) int64, from the samples of each class (K,).

    Proportional to nₖ^(1-b): 0 leaves the classes as they are, 1 makes them equal, 0.5 is the square root (Kang et al.,
    2020, arXiv:1910.09217, equation 1, with q = 1 - b). Each share is rounded down; the places that are left go, one
    each, to the classes whose shares lost most by that (largest remainders); between equal ones, to the class with
    more samples, then to the first.
    """
    weights = np.where(counts > 0, np.maximum(counts, 1.0) ** (1 - class_balance), 0.0)
    quotas = (counts.sum() * weights / weights.sum()).round(9)  # whole numbers despite rounding errors
    shares: np.ndarray = np.floor(quotas).astype(np.int64)
    largest = np.lexsort((-counts, shares - quotas))
    shares[largest[: counts.sum() - shares.sum()]] += 1
    return shares


def balance_order(
    order: np.ndarray, classes: np.ndarray, class_balance: float, random: np.random.Generator
) -> np.ndarray:
    """Change an order of all samples (n,) into one in which each class has its share."""
    counts = np.bincount(classes)
    shares = class_shares(counts, class_balance)
    grouped = order[np.argsort(classes[order], kind="stable")]  # class after class
    turn = np.arange(len(order)) - np.repeat(np.cumsum(shares) - shares, shares)  # 0, 1, ... within each class
    drawn = grouped[np.repeat(np.cumsum(counts) - counts, shares) + turn % np.repeat(counts, shares)]
    turns = random.permutation(np.repeat(np.arange(len(counts)), shares))  # whose turn it is at each place
    result: np.ndarray = np.empty_like(drawn)
    result[np.argsort(turns, kind="stable")] = drawn
    return result


class EvaluationOrder:
    """Every sample once: rank r of R takes samples r, r+R, r+2R … in batches, the last one smaller, nothing padded.
    `places` restricts which samples are taken."""

    def __init__(
        self, num_samples: int, *, batch_size: int, rank: int, world_size: int, places: Sequence[int] | None = None
    ):
        self.indices = (range(num_samples) if places is None else places)[rank::world_size]
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        for start in range(0, len(self.indices), self.batch_size):
            yield [Key(0, index) for index in self.indices[start : start + self.batch_size]]
