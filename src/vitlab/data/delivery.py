"""Bring the batches of a split to a device: from worker processes through a ring, or cut from images on the device."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from vitlab.data.cache import CropsOnly
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import Loader, choose_num_workers, choose_prefetch
from vitlab.data.loading.ring import BatchesInRing
from vitlab.data.order.sampler import EvaluationOrder, TrainingOrder
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Count, Natural, Unsigned

MOST_WORKERS, WORKERS_PER_CORE = 256, 16  # the larger holds: a run may have been configured for a larger machine
ON_BAD_IMAGE = ("error", "skip")


@dataclass(kw_only=True)
class Loading:
    """`num_workers` processes read, and each keeps `prefetch_batches` ready; None: chosen to suit the machine. A worker
    that is silent for `stall_timeout` seconds counts as stuck; 0: never. `on_bad_image`: "error" raises DataError for a
    file that cannot be read, "skip" leaves it out and counts it. Raises ConfigError for values out of range."""

    num_workers: Natural | None
    prefetch_batches: Count | None
    stall_timeout: Unsigned
    on_bad_image: str

    def __post_init__(self) -> None:
        most = max(MOST_WORKERS, WORKERS_PER_CORE * (os.cpu_count() or 1))
        if self.num_workers is not None and self.num_workers > most:
            raise ConfigError(
                f"data.loading.num_workers {self.num_workers} is not a number of processes from 0 to {most}; null: one "
                "for each core"
            )
        if self.on_bad_image not in ON_BAD_IMAGE:
            raise ConfigError(
                f"data.loading.on_bad_image '{self.on_bad_image}' is not one of: {', '.join(ON_BAD_IMAGE)}"
            )

    def loader(
        self,
        split: ImageSplit,
        order: TrainingOrder | EvaluationOrder,
        *,
        batch_size: int,
        processes: int,
        device: torch.device,
        from_device: bool = False,
        in_this_process: bool = False,
    ) -> Loader:
        """Load the batches of a split in this order, for one of `processes` on this machine; with `from_device`, they
        are cut out of images on the device."""
        for_gpu = device.type == "cuda"
        workers = 0 if in_this_process else choose_num_workers(self.num_workers, processes, for_gpu=for_gpu)
        if from_device and (isinstance(order, TrainingOrder) or CropsOnly.is_exact(split)):
            split, workers = CropsOnly.from_split(split), 0
        batch_bytes = batch_size * split.in_chans * sum(crop.image_size**2 for crop in split.crop.views())
        ready, fits = choose_prefetch(self.prefetch_batches, workers, processes, batch_bytes)
        dataset: Dataset[Any] = split
        if workers and fits:
            dataset = BatchesInRing(split, num_workers=workers, ready=ready, batch_bytes=batch_bytes)
        return Loader(
            dataset, order, num_workers=workers, prefetch_batches=ready, stall_timeout=self.stall_timeout, device=device
        )

    def check_readable(self, batch: Any) -> None:
        """Raise DataError for a file of a worker's batch that could not be read, unless such files are to be
        skipped."""
        if batch.unreadable and self.on_bad_image == "error":
            raise explain_unreadable(batch.unreadable[0])


def explain_unreadable(image: Any) -> DataError:
    return DataError(f"cannot read {image}; repair or remove the file, or set data.loading.on_bad_image=skip")
