"""Load the samples of a split as evaluation does, without a trainer, for models that are looked at and not trained."""

from collections.abc import Iterator, Sequence

import torch

from vitlab.data.batches.batch import Batch
from vitlab.data.image_datamodule import ImageDataModule
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
    """Yield every sample of a split once, or of its `places`, this rank's share of them, on `device` as the model takes
    them. Images that cannot be read are left out, or raise DataError, as data.loading.on_bad_image says; a batch
    without any image is left out. `processes` of this machine share its cores."""
    images = datamodule.get_evaluation_split(split)
    order = EvaluationOrder(len(images), batch_size=batch_size, rank=rank, world_size=world_size, places=places)
    loader = datamodule.loading.loader(images, order, batch_size=batch_size, processes=processes, device=device)
    for batch in loader:
        datamodule.loading.check_readable(batch)
        if len(batch.index):
            yield datamodule.preprocessing.finish_batch(batch.to(device))
