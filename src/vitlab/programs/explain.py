"""Explain on one page what the model of a finished run computes of an image."""

from pathlib import Path
from typing import cast

import torch
from omegaconf import DictConfig
from rich.progress import Progress, SpinnerColumn, TextColumn
from torch import Tensor, nn

from vitlab.atomic_files import write_whole
from vitlab.data import ImageDataModule
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.explaining.captions import classify_by_captions
from vitlab.explaining.page import Explained, GivenImage, build_page
from vitlab.explaining.writing import Writer
from vitlab.models import Captioner, VisionTransformer
from vitlab.run.inference.given_images import load_pixels
from vitlab.run.inference.given_texts import find_texts
from vitlab.run.inference.saved_classifier import open_classifier
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import check_ending, output_file
from vitlab.spelling import format_count
from vitlab.tasks import Contrastive, TextGeneration
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
    images = load_images(chosen, datamodule)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), transient=True) as progress:
        progress.add_task(f"tracing {format_count(len(images), 'image')} through the model", total=None)
        page = build(saved, given, images)
    path = place.make()
    write_whole(path, page)
    print(f"{path}\n{len(page) / 1e6:.2f} MB, {format_count(len(images), 'image')}; open it in any browser")
    if len(chosen) > len(images):
        height, width = images[0].pixels.shape[1:]
        print(f"{len(chosen) - len(images)} of {len(chosen)} images left out, which are not {height} x {width} pixels")
    if len(paths) > len(chosen):
        print(f"{len(chosen)} of {len(paths)} images; num_images={len(paths)} takes all, if they fit")
    return path


def load_images(paths: list[Path], datamodule: ImageDataModule) -> list[GivenImage]:
    """Load images, the first one and those of its size. Raises DataError for one that cannot be read."""
    images = []
    for path in paths:
        try:
            pixels = load_pixels(path, datamodule)
        except DataError as error:
            raise DataError(f"{error}; repair or remove the file") from error
        images.append(GivenImage(path.name, pixels, datamodule.preprocessing.normalize(pixels[None])))
    return [image for image in images if image.pixels.shape == images[0].pixels.shape]


def open_explained(saved: SavedRun, cfg: DictConfig, datamodule: ImageDataModule) -> Explained:
    """Open the model of a run: one that tells classes; one of images and texts, as a classifier of the captions in
    texts= or else of the names of its classes; or one that writes of an image. Raises ConfigError for a run of another
    kind, and for texts= that it does not read."""
    task = saved.task()
    given = Explained(
        name=str(saved.config.name),
        model=task.model,
        classes=[str(name) for name in saved.checkpoint["run"]["class_names"]],
        probabilities=nn.Softmax(dim=-1),
        temperature=1.0,
        mean=datamodule.preprocessing.mean.flatten().tolist(),
        std=datamodule.preprocessing.std.flatten().tolist(),
    )
    if isinstance(task, Contrastive):
        captions = name_captions(cfg, task, list(given.classes))
        asked = task.eval().zero_shot(captions)
        model = classify_by_captions(task.model, asked.classes)
        return given._replace(model=model, classes=captions, probabilities=asked.probabilities)
    if cfg.texts is not None:
        raise ConfigError(f"texts= needs a run of images and texts; leave it out for run={cfg.run}")
    if type(task) is TextGeneration and isinstance(task.model, Captioner):
        return given._replace(model=task.model.encoder, classes=[], writer=open_writer(task.eval()))
    if isinstance(task, TextGeneration):
        raise ConfigError(
            f"explain needs a model that tells classes, or writes of an image alone, but that of run={cfg.run} is a "
            f"{type(task.model).__name__}; views=reading of src/visualize.py draws where it looks"
        )
    classifier = open_classifier(saved, cfg.run, "explain", one_class=False)
    model, temperature = cast(VisionTransformer, classifier.model), classifier.temperature
    return given._replace(model=model, probabilities=classifier.probabilities, temperature=temperature)


def open_writer(task: TextGeneration) -> Writer:
    """Open the model of a task that writes what an image says."""
    vocabulary = task.vocabulary
    begin, end, padding = vocabulary.special
    special = {padding: "padding", begin: "begin", end: "end"}  # may be the same number; it ends a text then

    def write(image: Tensor, grid: tuple[int, int]) -> Tensor:
        written = task.generate(image, grid)
        tokens: Tensor = written.tokens[written.present]
        return tokens

    def name(token: int) -> str:
        return special.get(token) or vocabulary.decode([token]).replace(" ", "space") or f"token {token}"

    return Writer(cast(Captioner, task.model), write, begin, name, vocabulary.decode)


def name_captions(cfg: DictConfig, task: Contrastive, class_names: list[str]) -> list[str]:
    """Read the captions of texts=; without it, take the names of the run's classes. Raises ConfigError for a run
    without any."""
    if cfg.texts is not None:
        task.templates = ["{}"]
        return find_texts(str(cfg.texts), task.vocabulary, task.max_length)
    if not class_names:
        raise ConfigError(f"run={cfg.run} learned from texts and has no class names; set texts=<a file of lines>")
    return class_names


def build(saved: SavedRun, given: Explained, images: list[GivenImage]) -> bytes:
    """Build the page of these images. Raises ConfigError for a model that the page cannot explain."""
    try:
        with torch.inference_mode(False):
            return build_page(given, images, MOST_BYTES).encode()
    except ValueError as error:
        raise ConfigError(f"run={saved.folder.name}: {error}") from error
