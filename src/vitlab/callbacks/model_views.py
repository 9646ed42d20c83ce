"""Draw where the tested model looks, and what it has learned of positions and patches."""

from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.callbacks.best_model import BestModel
from vitlab.callbacks.figures import save_figure
from vitlab.data.batches.batch import Sample
from vitlab.data.order.sampler import Key
from vitlab.models import find_encoder
from vitlab.ranges import Count
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.task import Task
from vitlab.views import VIEWS, describe_training, eval_mode, gallery, likely, pick, why_no_relevance


class ModelViews(Callback):
    """After the test, draw all views of the model, or of the encoder of a masked autoencoder, for `num_images` images
    evenly spaced in the tested split, as pictures/<view>.png. Print one line for a model that is no Vision Transformer,
    and for a view that this model has nothing to show for."""

    def __init__(self, *, num_images: Count):
        self.num_images = num_images

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        task = pl_module.task_on_rank_zero()
        if task is not None:
            self.draw(trainer, task)

    def draw(self, trainer: pl.Trainer, task: Task) -> None:
        model, datamodule = find_encoder(task.model), trainer.datamodule
        if model is None:
            print(f"no views: {type(task.model).__name__} is not a Vision Transformer")
            return
        split = datamodule.get_evaluation_split(datamodule.test_split)
        if split.crop.output_size() is None:
            print("no views: they need images of one size")
            return
        chosen = [split[Key(0, place)] for place in pick(len(split), self.num_images)]
        samples = [sample for sample in chosen if isinstance(sample, Sample)]
        if not samples:
            print("no views: none of the chosen images can be read")
            return
        images = torch.stack([sample.image for sample in samples])
        preprocessing = datamodule.preprocessing.to(task.device)
        inputs = preprocessing.normalize(images.to(task.device))
        trained = describe_training(best_step(trainer))
        titles = [f"{Path(split.name(sample.index)).name}\n{trained}" for sample in samples]
        views, classes = set(VIEWS), None
        if isinstance(task, Supervised) and why_no_relevance(model) is None:
            with eval_mode(model):
                classes = likely(task.probabilities(task.model.forward(inputs)), datamodule.class_names)
            true = [split.words(sample.index, datamodule.class_names) for sample in samples]
            said = [", ".join(map(str, one)) for one in classes]
            titles = [f"{title}\ntrue {t}\nsaid {s}" for title, t, s in zip(titles, true, said, strict=True)]
        else:
            views -= {"relevance"}
        for name, figure in gallery(model, inputs, images / 255, titles, views, classes):
            if figure is None:
                print(f"no picture of {name}: the model has none")
            else:
                save_figure(trainer, figure, name)


def best_step(trainer: pl.Trainer) -> int:
    """The step of the weights that are tested."""
    best = [callback.step for callback in trainer.callbacks if isinstance(callback, BestModel)]
    return best[0] if best else trainer.global_step
