"""Reuse the memory that a worker puts its batches into: a fresh page costs more than filling it.

B batch
"""

from collections.abc import Sequence

import torch
from torch.utils.data import Dataset, get_worker_info

from vitlab.data.batches.batch import RawBatch
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import SLOTS_IN_USE
from vitlab.data.order.sampler import Key


class BatchesInRing(Dataset[RawBatch]):
    """An ImageSplit whose workers each write their batches into shared memory of their own, `ready` + 2 places of
    `batch_bytes` each. So the pixels of a batch stay valid until that many more have come from its worker. A batch that
    does not fit gets new memory."""

    def __init__(self, split: ImageSplit, *, num_workers: int, ready: int, batch_bytes: int):
        self.split = split
        self.places = ready + SLOTS_IN_USE
        self.ring = torch.empty(num_workers, self.places, batch_bytes, dtype=torch.uint8)
        self.ring.share_memory_()
        self.turn = 0

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, keys: Sequence[Key]) -> RawBatch:
        worker = get_worker_info()
        assert worker is not None, "a ring is written by workers"
        place = self.ring[worker.id, self.turn % self.places]
        self.turn += 1
        return self.split.batch(keys, place)
