"""The first training batch as the model sees it: augmented, mixed, cut and put together again."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from vitlab.callbacks.figures import image_grid, save_figure
from vitlab.data.batches.batch import Batch
from vitlab.layers import MixedGrids, unpatchify

NAMED = 4  # classes of an image


class BatchPicture(Callback):
    """Saves pictures/training_batch.png, up to `num_images` images with their labels, and logs it."""

    def __init__(self, *, num_images: int):
        if num_images < 1:
            raise ValueError(f"num_images {num_images} is not at least 1")
        self.num_images = num_images

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == 0 and batch_idx == 0 and trainer.is_global_zero:
            images = pixels(trainer.datamodule.preprocessing, batch)[: self.num_images]
            titles = [label(target, trainer.datamodule.class_names) for target in batch.target[: self.num_images]]
            figure = image_grid(images, titles, columns=8, heading="a training batch as the model sees it")
            save_figure(trainer, figure, "training_batch")


def pixels(preprocessing: Any, batch: Batch) -> list[Tensor]:
    """The images (C, H, W) in [0, 1] of a finished batch."""
    P = preprocessing.patch_size
    if batch.grid is None:
        images = list(batch.inputs)
    elif isinstance(batch.grid, MixedGrids):
        parts = zip(batch.inputs, batch.grid.grids, strict=True)
        images = [unpatchify(patches[None, : h * w], P, (h, w))[0] for patches, (h, w) in parts]
    else:
        images = list(unpatchify(batch.inputs, P, batch.grid))
    return [preprocessing.denormalize(image[None])[0] for image in images]


def label(target: Tensor, class_names: list[str]) -> str:
    """A class, or up to `NAMED` classes, one below the other, with their shares where an image is mixed."""
    if target.ndim == 0:
        return class_names[int(target)]
    shares, classes = (part[:NAMED] for part in target.sort(descending=True, stable=True))
    parts = [(class_names[c], s) for c, s in zip(classes.tolist(), shares.tolist(), strict=True) if s > 0.005]
    return "\n".join(name if s > 0.995 else f"{s:.0%} {name}" for name, s in parts) or "none"
