"""Explain on one page what the model of a finished run computes of an image."""

from pathlib import Path
from typing import cast

import torch
from omegaconf import DictConfig
from rich.progress import Progress, SpinnerColumn, TextColumn

from vitlab.atomic_files import write_whole
from vitlab.data import ImageDataModule
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.explaining.captions import classify_by_captions
from vitlab.explaining.page import Explained, GivenImage, build_page
from vitlab.models import VisionTransformer
from vitlab.run.inference.given_images import load_pixels
from vitlab.run.inference.given_texts import find_texts
from vitlab.run.inference.saved_classifier import open_classifier
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import check_ending, output_file
from vitlab.spelling import format_count
from vitlab.tasks import Contrastive
from vitlab.views import pick

MOST_BYTES = 3_000_000
NAME = "explained.html"


def explain(cfg: DictConfig) -> Path:
    """Write the page of cfg.images, and print its file. Raises ConfigError for a model that it cannot explain, and
    DataError for images that cannot be found or read."""
    saved = SavedRun.open(cfg.run)
    place = output_file(cfg.output, "explain", saved.folder / "explain", NAME, overwrite=cfg.overwrite)
    check_ending(place.path, [".html"])
    datamodule = saved.datamodule()
    given = open_explained(saved, cfg, datamodule)
    paths = find_images(cfg.images)
    place.check_apart(paths)
    chosen = [paths[number] for number in pick(len(paths), cfg.num_images)]
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), transient=True) as progress:
        progress.add_task(f"tracing {format_count(len(chosen), 'image')} through the model", total=None)
        page = build(saved, given, chosen, datamodule)
    path = place.make()
    write_whole(path, page)
    print(f"{path}\n{len(page) / 1e6:.2f} MB, {format_count(len(chosen), 'image')}; open it in any browser")
    if len(paths) > len(chosen):
        print(f"{len(chosen)} of {len(paths)} images; num_images={len(paths)} takes all, if they fit")
    return path


def open_explained(saved: SavedRun, cfg: DictConfig, datamodule: ImageDataModule) -> Explained:
    """Open the classifier of a run; for one of images and texts, of the captions in texts=, or of its class names.
    Raises ConfigError for a run of another kind, and for texts= that it does not read."""
    task = saved.task()
    classes = [str(name) for name in saved.checkpoint["run"]["class_names"]]
    if isinstance(task, Contrastive):
        classes = name_captions(cfg, task, classes)
        asked = task.eval().zero_shot(classes)
        model, probabilities, temperature = classify_by_captions(task.model, asked.classes), asked.probabilities, 1.0
    elif cfg.texts is not None:
        raise ConfigError(f"texts= needs a run of images and texts; leave it out for run={cfg.run}")
    else:
        classifier = open_classifier(saved, cfg.run, "explain", one_class=False)
        model, probabilities = cast(VisionTransformer, classifier.model), classifier.probabilities
        temperature = classifier.temperature
    return Explained(
        name=str(saved.config.name),
        model=model,
        classes=classes,
        probabilities=probabilities,
        temperature=temperature,
        mean=datamodule.preprocessing.mean.flatten().tolist(),
        std=datamodule.preprocessing.std.flatten().tolist(),
    )


def name_captions(cfg: DictConfig, task: Contrastive, class_names: list[str]) -> list[str]:
    """Read the captions of texts=; without it, take the names of the run's classes. Raises ConfigError for a run
    without any."""
    if cfg.texts is not None:
        task.templates = ["{}"]
        return find_texts(str(cfg.texts), task.vocabulary, task.max_length)
    if not class_names:
        raise ConfigError(f"run={cfg.run} learned from texts and has no class names; set texts=<a file of lines>")
    return class_names


def build(saved: SavedRun, given: Explained, paths: list[Path], datamodule: ImageDataModule) -> bytes:
    """Build the page of these files. Raises DataError for one that cannot be read, and ConfigError for a model that the
    page cannot explain."""
    images = []
    for path in paths:
        try:
            pixels = load_pixels(path, datamodule)
        except DataError as error:
            raise DataError(f"{error}; repair or remove the file") from error
        images.append(GivenImage(path.name, pixels, datamodule.preprocessing.normalize(pixels[None])))
    try:
        with torch.inference_mode(False):
            return build_page(given, images, MOST_BYTES).encode()
    except ValueError as error:
        raise ConfigError(f"run={saved.folder.name}: {error}") from error
