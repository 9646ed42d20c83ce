"""Open the classifier of a finished run, and the images that it was trained and tested on."""

from dataclasses import replace

from vitlab.config.nodes import resolve_config
from vitlab.data import ImageDataModule
from vitlab.errors import ConfigError
from vitlab.models import VisionTransformer
from vitlab.run.checks.preconditions import check_images
from vitlab.run.inference.frozen_model import prepare_evaluation
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks.supervised import Supervised


def open_classifier(saved: SavedRun, run: str, command: str, *, one_class: bool) -> Supervised:
    """Rebuild the task of a run for a command, on the CPU. Raises ConfigError unless a Vision Transformer of vitlab
    tells classes of images of one size, with `one_class` one class of each."""
    check_images(saved.config.data)
    if "max_tokens" in resolve_config(saved.config)["data"]["images"]["eval_crop"]:
        raise ConfigError(f"run={run} takes images of different sizes; {command} needs a run with one image_size")
    task = saved.task()
    if not isinstance(task, Supervised) or (one_class and task.labels == "several_classes"):
        lacks = "one class for each image" if one_class else "classes"
        tasks = "classification or distillation" if one_class else "classification, multilabel or distillation"
        raise ConfigError(
            f"run={run} was trained without {lacks} ({type(task).__name__}); {command} needs a run of task={tasks}"
        )
    if not isinstance(task.model, VisionTransformer):
        raise ConfigError(
            f"{command} needs a Vision Transformer of vitlab, but the model of run={run} is {type(task.model).__name__}"
        )
    classifier: Supervised = task.cpu().eval()
    return classifier


def open_images(saved: SavedRun) -> ImageDataModule:
    """Open the data of a run, as it is evaluated on, in pixels rather than patches."""
    config = replace(saved, config=prepare_evaluation(saved.config, few_labels=False))
    datamodule: ImageDataModule = config.change_config({"data": {"patch_size": None}}).datamodule()
    datamodule.prepare_data()
    datamodule.setup()
    return datamodule
