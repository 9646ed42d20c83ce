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
from vitlab.models import encoder_of
from vitlab.programs.predict import read_image
from vitlab.run.saved_run import SavedRun
from vitlab.views import OF_IMAGES, VIEWS, gallery, pick


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
    trained = saved.task().model
    model = encoder_of(trained)
    if model is None:
        raise ConfigError(
            f"run={cfg.run} is a {type(trained).__name__}, without attention to look at; give a run of a ViT"
        )
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
    folder = Path(cfg.output) if cfg.output else saved.folder / "pictures"
    files = []
    for name, figure in gallery(model.to(device), inputs, images / 255, [path.name for path in chosen], views):
        if figure is None:
            print(f"no picture of {name}: the model has none")
            continue
        files.append(write_figure(figure, folder / f"{name}.png"))
        print(files[-1])
    if len(paths) > len(chosen):
        print(f"{len(chosen)} of {len(paths)} images; num_images={len(paths)} takes all")
    return files


def checked_views(views: ListConfig) -> list[str]:
    """Raise ConfigError unless each is a view."""
    names = [str(view) for view in views] if isinstance(views, ListConfig) else [str(views)]
    unknown = [name for name in names if name not in VIEWS]
    if unknown or not names:
        raise ConfigError(f"views={','.join(unknown) or '[]'} is not among: {', '.join(VIEWS)}")
    return names
