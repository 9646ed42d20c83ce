"""How the batches of a split come to a device: from worker processes, through a ring, or from what the device holds."""

from typing import NamedTuple

import torch
from torch.utils.data import Dataset

from vitlab.data.cache import CropsOnly
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import Loader, batches_ahead, workers_for
from vitlab.data.loading.ring import BatchesInRing
from vitlab.data.order.sampler import EvaluationOrder, TrainingOrder


class Reading(NamedTuple):
    """The keys of conf/data/_images.yaml that say how much is read at once; None is chosen by what the machine has."""

    num_workers: int | None
    prefetch_batches: int | None
    stall_timeout: float
    from_device: bool  # data.cache=device

    def loader(
        self,
        split: ImageSplit,
        order: TrainingOrder | EvaluationOrder,
        *,
        batch_bytes: int,
        processes: int,
        device: torch.device,
    ) -> Loader:
        """The batches of a split in this order, for one of `processes` on this machine."""
        workers = workers_for(self.num_workers, processes)
        if self.from_device and (isinstance(order, TrainingOrder) or CropsOnly.exact(split)):
            split, workers = CropsOnly.of(split), 0
        ready, fits = batches_ahead(self.prefetch_batches, workers, processes, batch_bytes)
        dataset: Dataset = split
        if workers and fits:
            dataset = BatchesInRing(split, num_workers=workers, ready=ready, batch_bytes=batch_bytes)
        return Loader(
            dataset, order, num_workers=workers, prefetch_batches=ready, stall_timeout=self.stall_timeout, device=device
        )
