"""The samples of a split as evaluation sees them, without a trainer: for models that are looked at, not trained."""

from collections.abc import Iterator, Sequence

import torch

from vitlab.data.batches.batch import Batch
from vitlab.data.datamodule import ImageDataModule
from vitlab.data.loading.loader import Loader, batches_ahead, workers_for
from vitlab.data.order.sampler import EvaluationOrder


def evaluation_batches(
    datamodule: ImageDataModule,
    split: str,
    *,
    batch_size: int,
    device: torch.device,
    places: Sequence[int] | None = None,
    rank: int = 0,
    world_size: int = 1,
    processes: int = 1,
) -> Iterator[Batch]:
    """Every sample of a split once, or of its `places`, this rank's share of them, on `device` as the model takes them.

    Images that cannot be read are missing, or raise DataError, as data.on_bad_image says; batches without any image
    are left out. `processes` of this machine share its cores.
    """
    images = datamodule.evaluated(split)
    order = EvaluationOrder(len(images), batch_size=batch_size, rank=rank, world_size=world_size, places=places)
    workers = workers_for(datamodule.reading.num_workers, processes)
    batch_bytes = batch_size * datamodule.in_chans * datamodule.image_size**2
    ready, _ = batches_ahead(datamodule.reading.prefetch_batches, workers, processes, batch_bytes)
    loader = Loader(
        images,
        order,
        num_workers=workers,
        prefetch_batches=ready,
        stall_timeout=datamodule.reading.stall_timeout,
        device=device,
    )
    for batch in loader:
        datamodule.check_readable(batch)
        if len(batch.index):
            yield datamodule.preprocessing.finished(batch.to(device))
