"""Draw the first training batch as the model sees it: augmented, mixed, cut into patches and put together again."""

from typing import Any

import pytorch_lightning as pl
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from vitlab.callbacks.figures import image_grid, save_figure
from vitlab.data import ImageDataModule
from vitlab.data.batches.batch import Batch, View
from vitlab.data.batches.preprocessing import Preprocessing
from vitlab.layers import MixedGrids, unpatchify
from vitlab.ranges import Count

MOST_CLASSES = 4  # classes of an image
COLUMNS = 8


class BatchPicture(Callback):
    """Saves pictures/training_batch.png, up to `num_images` images with their labels, and logs it."""

    def __init__(self, *, num_images: Count):
        self.num_images = num_images

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Draw the first batch, and take this callback out of the trainer: no later batch is drawn."""
        images = isinstance(trainer.datamodule, ImageDataModule)
        if images and trainer.global_step == 0 and trainer.is_global_zero:
            figure = batch_figure(trainer.datamodule, batch, self.num_images, "a training batch as the model sees it")
            save_figure(trainer, figure, "training_batch")
        trainer.callbacks = [callback for callback in trainer.callbacks if callback is not self]


def batch_figure(datamodule: ImageDataModule, batch: Batch, num_images: int, heading: str) -> Figure:
    """Draw up to `num_images` views of the images of a batch, those of an image beside each other, with its label."""
    views = [pixels(datamodule.preprocessing, view) for view in batch.views]
    count = min(max(num_images // len(views), 1), len(batch.index))
    titles = [label(batch, i, datamodule) for i in range(count)]
    images = [view[i] for i in range(count) for view in views]
    titles = [title for title in titles for _ in views]
    return image_grid(images, titles, columns=len(views) if len(views) > 1 else COLUMNS, heading=heading)


def pixels(preprocessing: Preprocessing, view: View) -> list[Tensor]:
    """Undo patches and normalisation: images (C, H, W) in [0, 1] of a finished view."""
    P = preprocessing.patch_size
    if P is None or view.grid is None:
        images = list(view.inputs)
    elif isinstance(view.grid, MixedGrids):
        parts = zip(view.inputs, view.grid.grids, strict=True)
        images = [unpatchify(patches[None, : h * w], P, (h, w))[0] for patches, (h, w) in parts]
    else:
        images = list(unpatchify(view.inputs, P, view.grid))
    return [preprocessing.denormalize(image[None])[0] for image in images]


def label(batch: Batch, i: int, datamodule: ImageDataModule) -> str:
    """Name the i-th image's label; for a mixed image, each class with its share."""
    if datamodule.mixing is None:
        return datamodule.training.words(int(batch.index[i]), datamodule.class_names)
    return format_shares(batch.target[i], datamodule.class_names)


def format_shares(shares: Tensor, class_names: list[str]) -> str:
    """List up to `MOST_CLASSES` classes of a mixed image, one per line, with their shares (K,)."""
    shares, classes = (part[:MOST_CLASSES] for part in shares.sort(descending=True, stable=True))
    parts = [(class_names[c], s) for c, s in zip(classes.tolist(), shares.tolist(), strict=True) if s > 0.005]
    return "\n".join(name if s > 0.995 else f"{s:.0%} {name}" for name, s in parts) or "none"
