"""Draw where the model of a finished run looks, and what it has learned.

B images, C channels, H W image height and width
"""

from pathlib import Path

import torch
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from vitlab.callbacks.figures import write_figure
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.models import VisionTransformer, encoder_of
from vitlab.programs.predict import read_image
from vitlab.run.saved_run import SavedRun
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised
from vitlab.views import OF_IMAGES, VIEWS, Likely, evaluating, gallery, likely, pick, trained_for, why_no_relevance


def visualize(cfg: DictConfig) -> list[Path]:
    """Draw cfg.views of the run's model, for the images that are named; returns the files, and prints them.

    Raises ConfigError for a view that there is none of, for images that are wanting, and for a model without
    attention; DataError for images that cannot be found or read.
    """
    views = checked_views(cfg.views)
    of_images = [view for view in views if view in OF_IMAGES]
    if of_images and cfg.images is None:
        raise ConfigError(f"the views {', '.join(of_images)} need images=<file, folder or glob>")
    saved = SavedRun.open(cfg.run)
    paths = find_images(cfg.images) if of_images else []
    task = saved.task()
    model = encoder_of(task.model)
    if model is None:
        raise ConfigError(
            f"run={cfg.run} is a {type(task.model).__name__}, without attention to look at; give a run of a ViT"
        )
    if "relevance" in views:
        check_relevance(task, model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    datamodule = saved.datamodule()
    if paths and datamodule.images.eval_crop.output_size() is None:
        raise ConfigError(f"views are drawn of images of one size, and run={cfg.run} was evaluated on different ones")
    chosen = [paths[place] for place in pick(len(paths), cfg.num_images)] if paths else []
    read = [read_image(path, datamodule) for path in chosen]
    for image in read:
        if isinstance(image, str):
            raise DataError(f"{image}; mend or remove the file")
    images = torch.stack([image for image in read if isinstance(image, Tensor)]) if read else torch.empty(0)
    inputs = datamodule.preprocessing.to(device).normalize(images.to(device)) if read else images
    task.to(device)
    classes = likeliest_classes(task, inputs, saved.checkpoint["run"]["class_names"]) if read else None
    trained = trained_for(int(saved.checkpoint["global_step"]))
    said = [f"said {', '.join(map(str, one))}" for one in classes] if classes else []
    titles = ["\n".join([path.name, *said[i : i + 1], trained]) for i, path in enumerate(chosen)]
    folder = Path(cfg.output) if cfg.output else saved.new_folder("visualize")
    files = []
    for name, figure in gallery(model, inputs, images / 255, titles, views, classes):
        if figure is None:
            print(f"no picture of {name}: the model has none")
            continue
        files.append(write_figure(figure, folder / f"{name}.png"))
        print(files[-1])
    if len(paths) > len(chosen):
        print(f"{len(chosen)} of {len(paths)} images; num_images={len(paths)} takes all")
    return files


def likeliest_classes(task: Task, inputs: Tensor, class_names: list[str]) -> list[list[Likely]] | None:
    """What the model makes of images (B, C, H, W); None of one that tells no classes."""
    if not isinstance(task, Supervised):
        return None
    with evaluating(task.model):
        return likely(task.probabilities(task.model.forward(inputs)), class_names)


def check_relevance(task: Task, model: VisionTransformer) -> None:
    """Raise ConfigError for a model of which nothing speaks for a class, or not as the view is defined."""
    why = why_no_relevance(model)
    if not isinstance(task, Supervised):
        why = f"it speaks for classes, and this run has learned without them ({type(task).__name__})"
    if why:
        raise ConfigError(f"views=relevance: {why}; leave it out")


def checked_views(views: ListConfig) -> list[str]:
    """Raise ConfigError unless each is a view."""
    names = [str(view) for view in views] if isinstance(views, ListConfig) else [str(views)]
    unknown = [name for name in names if name not in VIEWS]
    if unknown or not names:
        raise ConfigError(f"views={','.join(unknown) or '[]'} is not among: {', '.join(VIEWS)}")
    return names
