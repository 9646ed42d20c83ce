"""What a masked autoencoder sees of images, what it makes of them, and the images (He et al., 2022, arXiv:2111.06377,
figure 2).

B images, C channels, H W image height and width, P patch_size, N patches
"""

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from vitlab.callbacks.figures import image_grid, save_figure
from vitlab.data.batches.batch import Batch, Sample, collate
from vitlab.data.batches.preprocessing import Preprocessing
from vitlab.errors import ConfigError
from vitlab.layers import unpatchify
from vitlab.ranges import Count
from vitlab.tasks.masked_autoencoding import MaskedAutoencoding
from vitlab.views import pick
from vitlab.views.capture import eval_mode

GRAY = 0.5  # shown for hidden patches
IMAGES_IN_A_ROW = 3


class ReconstructionPicture(Callback):
    """Saves pictures/reconstruction.png and logs it: for `num_images` images, evenly spaced in the split, the patches
    that are seen, the hidden ones predicted, and the image. After every `every_n_validations`th validation of a start,
    and of the best model after the test. Raises ConfigError for a task that predicts no patches."""

    def __init__(self, *, num_images: Count, every_n_validations: Count):
        self.num_images = num_images
        self.every_n_validations = every_n_validations
        self.validations = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if not hasattr(pl_module, "reconstruct"):
            raise ConfigError("callbacks.reconstruction draws predicted patches; it needs task=masked_autoencoding")

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validations += not trainer.sanity_checking
        if not trainer.sanity_checking and self.validations % self.every_n_validations == 0:
            self.draw(trainer, pl_module, "val", f", after {trainer.global_step:,} steps")

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.draw(trainer, pl_module, trainer.datamodule.test_split)

    def draw(self, trainer: pl.Trainer, pl_module: pl.LightningModule, split: str, when: str = "") -> None:
        task: MaskedAutoencoding | None = pl_module.task_on_rank_zero()
        if task is None:
            return
        datamodule = trainer.datamodule
        images = datamodule.get_evaluation_split(split)
        chosen = [images[(0, place)] for place in pick(len(images), self.num_images)]
        samples = [sample for sample in chosen if isinstance(sample, Sample)]
        if not samples:
            print("no picture of reconstructions: none of the chosen images can be read")
            return
        batch = datamodule.preprocessing.finish_batch(collate(samples, None).to(task.device))
        with eval_mode(task.model):
            predicted, mask = task.reconstruct(batch)
        pictures = triples(predicted, mask, batch, datamodule.preprocessing)
        titles = ["seen", "predicted where hidden", "image"] * len(samples)
        heading = f"{split}: {mask.float().mean():.0%} of the patches hidden{when}"
        if task.normalize_target:
            heading += "\nmean and contrast of hidden patches are put back from the image: nothing predicts them"
        figure = image_grid(pictures, titles, columns=3 * min(IMAGES_IN_A_ROW, len(samples)), heading=heading)
        save_figure(trainer, figure, "reconstruction")


def triples(predicted: Tensor, mask: Tensor, batch: Batch, preprocessing: Preprocessing) -> list[Tensor]:
    """Draw patches (B, N, C·P·P), those (B, N) being hidden, as images (C, H, W) in [0, 1]: for each image what is
    seen, what is predicted, and the image itself."""

    P = preprocessing.patch_size
    assert P is not None

    def images(patches: Tensor) -> Tensor:
        return preprocessing.denormalize(unpatchify(patches, P, batch.view.grid))

    hidden = mask[..., None].expand_as(batch.view.inputs).type_as(batch.view.inputs)
    hidden = unpatchify(hidden, P, batch.view.grid) > 0.5
    whole = images(batch.view.inputs)
    rows = torch.stack([whole.masked_fill(hidden, GRAY), images(predicted), whole], dim=1)  # (B, 3, C, H, W)
    return list(rows.flatten(0, 1).cpu())
