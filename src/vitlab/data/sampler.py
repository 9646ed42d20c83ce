"""Which samples come at which step: a pure function of (seed, step), cut into batches for one rank.

n samples of a split, B global batch
"""

from collections.abc import Callable, Iterator

import numpy as np

from vitlab.counted import counted_seed
from vitlab.data.batch import Key


class TrainingOrder:
    """Batches of keys for one rank, from the optimizer step that `position()` tells when iteration starts.

    Epoch e is a permutation of the n samples seeded by (seed, e). Its first steps_per_epoch · B entries are trained on;
    the tail, another one each epoch, is left out. A step's global batch is cut into `accumulation` micro-batches, and
    each of these into a piece for every rank, so that all ranks together take the same samples at the same step however
    many they are.

    `groups` (n,) numbers the shard each sample lies in: with a `window`, that many shards, drawn at random, are
    shuffled together before the next ones come, so that few are read at a time. `repeats` puts each sample that many
    times in a row, with another augmentation each, and an epoch holds as many samples fewer (repeated augmentation:
    Hoffer et al., 2020, arXiv:1901.09335). `image_size` tells a step's, 0 for the crop's own.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        global_batch_size: int,
        accumulation: int,
        rank: int,
        world_size: int,
        seed: int,
        position: Callable[[], int],
        groups: np.ndarray | None = None,
        window: int | None = None,
        repeats: int = 1,
        image_size: Callable[[int], int] = lambda step: 0,
    ):
        self.num_samples = num_samples
        self.global_batch_size = global_batch_size
        self.accumulation = accumulation
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.position = position
        self.groups = groups
        self.window = window
        self.repeats = repeats
        self.image_size = image_size
        self.steps_per_epoch = num_samples // global_batch_size

    def __len__(self) -> int:
        """Micro-batches in a whole epoch."""
        return self.steps_per_epoch * self.accumulation

    def permutation(self, epoch: int) -> np.ndarray:
        """The order of an epoch, (n,)."""
        random = np.random.default_rng(counted_seed("order", self.seed, epoch))
        order = random.permutation(self.num_samples)
        if self.groups is None or self.window is None:
            return order
        shards, shard = np.unique(self.groups, return_inverse=True)
        turn = random.permutation(len(shards)) // self.window  # in which window a shard's turn comes
        return order[np.argsort(turn[shard[order]], kind="stable")]

    def __iter__(self) -> Iterator[list[Key]]:
        """An epoch's worth of micro-batches from `position()` on, over the end of the epoch where it comes sooner."""
        start = self.position()
        for step in range(start, start + self.steps_per_epoch):
            epoch, first = divmod(step, self.steps_per_epoch)
            if step == start or first == 0:
                order = self.permutation(epoch)
            places = np.arange(first * self.global_batch_size, (first + 1) * self.global_batch_size)
            size = self.image_size(step)
            for micro_batch in places.reshape(self.accumulation, self.world_size, -1):
                indices, views = np.divmod(micro_batch[self.rank], self.repeats)
                yield [Key(epoch, i, v, size) for i, v in zip(order[indices].tolist(), views.tolist(), strict=True)]


class EvaluationOrder:
    """Every sample once: rank r of R takes samples r, r+R, r+2R … in batches, the last ones smaller, nothing padded."""

    def __init__(self, num_samples: int, *, batch_size: int, rank: int, world_size: int):
        self.indices = range(rank, num_samples, world_size)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        for start in range(0, len(self.indices), self.batch_size):
            yield [Key(0, index) for index in self.indices[start : start + self.batch_size]]
