"""Draw where the tested model looks, and what it has learned of positions and patches."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.callbacks.figures import save_figure
from vitlab.data.batches.raw_batch import Sample
from vitlab.data.order.key import Key
from vitlab.models import encoder_of
from vitlab.views import gallery, pick


class ModelViews(Callback):
    """After the test, draw all views of the model, or of the encoder of a masked autoencoder, for `num_images` images
    evenly spaced in the tested split, as pictures/<view>.png. Print one line for a model that is no Vision Transformer,
    and for a view that this model has nothing to show for."""

    def __init__(self, *, num_images: int):
        if num_images < 1:
            raise ValueError(f"num_images {num_images} is not at least 1")
        self.num_images = num_images

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        model, datamodule = encoder_of(pl_module.model), trainer.datamodule
        if model is None:
            print(f"no views: {type(pl_module.model).__name__} is no Vision Transformer")
            return
        split = datamodule.evaluated(datamodule.test_split)
        if split.crop.output_size() is None:
            print("no views: they are drawn of images of one size")
            return
        chosen = [split[Key(0, place)] for place in pick(len(split), self.num_images)]
        samples = [sample for sample in chosen if isinstance(sample, Sample)]
        if not samples:
            print("no views: none of the images chosen can be read")
            return
        images = torch.stack([sample.image for sample in samples])
        titles = [split.words(sample.index, datamodule.class_names) for sample in samples]
        preprocessing = datamodule.preprocessing.to(pl_module.device)
        inputs = preprocessing.normalize(images.to(pl_module.device))
        for name, figure in gallery(model, inputs, images / 255, titles):
            if figure is None:
                print(f"no picture of {name}: the model has none")
            else:
                save_figure(trainer, figure, name)
