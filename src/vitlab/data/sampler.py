"""Which samples come at which step: a pure function of (seed, step), cut into batches for one rank."""

from collections.abc import Callable, Iterator

import numpy as np

from vitlab.counted import counted_seed


class TrainingOrder:
    """Batches of (epoch, index) for one rank, from the optimizer step that `position()` tells when iteration starts.

    Epoch e is a permutation of the n samples seeded by (seed, e). Its first steps_per_epoch · global_batch_size
    entries are trained on; the tail, another one each epoch, is left out. A step's global batch is cut into
    `accumulation` micro-batches, and each of these into a piece for every rank, so that all ranks together take
    the same samples at the same step however many they are.
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
    ):
        self.num_samples = num_samples
        self.global_batch_size = global_batch_size
        self.accumulation = accumulation
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.position = position
        self.steps_per_epoch = num_samples // global_batch_size

    def __len__(self) -> int:
        """Micro-batches in a whole epoch."""
        return self.steps_per_epoch * self.accumulation

    def permutation(self, epoch: int) -> np.ndarray:
        """The order of an epoch, (n,)."""
        return np.random.default_rng(counted_seed("order", self.seed, epoch)).permutation(self.num_samples)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """An epoch's worth of micro-batches from `position()` on, over the end of the epoch where it comes sooner."""
        start = self.position()
        for step in range(start, start + self.steps_per_epoch):
            epoch, first = divmod(step, self.steps_per_epoch)
            if step == start or first == 0:
                order = self.permutation(epoch)
            batch = order[first * self.global_batch_size : (first + 1) * self.global_batch_size]
            for micro_batch in batch.reshape(self.accumulation, self.world_size, -1):
                yield [(epoch, int(index)) for index in micro_batch[self.rank]]


class EvaluationOrder:
    """Every sample once: rank r of R takes samples r, r+R, r+2R … in batches, the last ones smaller, nothing padded."""

    def __init__(self, num_samples: int, *, batch_size: int, rank: int, world_size: int):
        self.indices = range(rank, num_samples, world_size)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for start in range(0, len(self.indices), self.batch_size):
            yield [(0, index) for index in self.indices[start : start + self.batch_size]]
