"""Draw where the model of a finished run looks, and what it has learned.

B images, C channels, H W image height and width
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from vitlab.callbacks.figures import write_figure
from vitlab.data import ImageDataModule
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.machine import find_fastest_device
from vitlab.models import StreamAttentionMaps, VisionTransformer, find_encoder
from vitlab.run.inference.given_images import load_pixels, prepare_images
from vitlab.run.inference.given_texts import ask_question, find_texts, require_input, text_view
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import Output, output_folder
from vitlab.tasks import Answering, Contrastive, Task, TextGeneration
from vitlab.tasks.answering import FILL, QuestionAnswering
from vitlab.tasks.supervised import Supervised
from vitlab.views import (
    OF_IMAGES,
    VIEWS,
    ClassProbability,
    describe_training,
    eval_mode,
    gallery,
    likely,
    modalities_figure,
    pick,
    reading_figure,
    similarity_figure,
    texts_figure,
    why_no_relevance,
)
from vitlab.vocabulary import Vocabulary

READING, MODALITIES = "reading", "modalities"  # views of models that write, and of those among them that are asked
SIMILARITIES = "similarities"  # of images and texts in one space
KNOWN = (*VIEWS, READING, SIMILARITIES)


def visualize(cfg: DictConfig) -> list[Path]:
    """Draw cfg.views of the run's model, for the images that are named; returns the files, and prints them.

    Raises ConfigError for an unknown view, for missing images or texts, and for a model without
    attention; DataError for what cannot be found or read.
    """
    views = check_views(cfg.views)
    saved = SavedRun.open(cfg.run)
    place = output_folder(cfg.output, "visualize", saved.folder / "visualize", overwrite=cfg.overwrite)
    task = saved.task()
    if cfg.question is not None:
        ask_question(cfg, task)  # refuses it of a run that is asked nothing
    compared = isinstance(task, Contrastive) and views == [SIMILARITIES]
    if cfg.texts is not None and saved.input_vocabulary is None and not compared:
        raise ConfigError(
            f"texts= needs a run that reads texts, or views={SIMILARITIES} with a run of images and texts; "
            f"leave it out, or set views={SIMILARITIES}"
        )
    if isinstance(task, TextGeneration) and views in (None, [READING]):
        read_all = read_images if saved.input_vocabulary is None else read_texts
        return read_all(cfg, saved, task, place)
    if compared:
        return compare(cfg, saved, task, place)
    views = [view for view in VIEWS if view != "relevance"] if views is None else views
    if READING in views:
        raise ConfigError(
            f"views={READING} needs a run that writes texts, and no other views; set other views for run={cfg.run}"
        )
    of_images = [view for view in views if view in OF_IMAGES]
    if SIMILARITIES in views:
        raise ConfigError(
            f"views={SIMILARITIES} needs a run of images and texts, and no other views; set other views for "
            f"run={cfg.run}"
        )
    if of_images and cfg.images is None:
        raise ConfigError(f"the views {', '.join(of_images)} need images=<file, folder or glob>")
    paths = find_images(cfg.images) if of_images else []
    place.check_apart(paths)
    model = find_encoder(task.model)
    if model is None:
        given = " with question=" if isinstance(task, Answering) else ""
        found = "without attention to look at; give a run of a ViT"
        if isinstance(task, TextGeneration):
            found = f"which reads texts too; views={READING}{given} draws where it looks"
        raise ConfigError(f"run={cfg.run} is a {type(task.model).__name__}, {found}")
    if "relevance" in views:
        check_relevance(task, model)
    device = find_fastest_device()
    datamodule = saved.datamodule()
    if paths and datamodule.images.eval_crop.output_size() is None:
        raise ConfigError(f"views are drawn of images of one size, and run={cfg.run} was evaluated on different ones")
    chosen = [paths[place] for place in pick(len(paths), cfg.num_images)] if paths else []
    read = load_images(chosen, datamodule)
    images = torch.stack(read) if read else torch.empty(0)
    inputs = datamodule.preprocessing.to(device).normalize(images.to(device)) if read else images
    task.to(device)
    classes = find_likeliest_classes(task, inputs, saved.checkpoint["run"]["class_names"]) if read else None
    trained = describe_training(int(saved.checkpoint["global_step"]))
    said = [f"said {', '.join(map(str, one))}" for one in classes] if classes else []
    titles = ["\n".join([path.name, *said[i : i + 1], trained]) for i, path in enumerate(chosen)]
    files = write_pictures(place, gallery(model, inputs, images / 255, titles, views, classes))
    tell_others(len(paths), len(chosen), "images")
    return files


def write_pictures(place: Output, pictures: Iterable[tuple[str, Figure | None]]) -> list[Path]:
    """Write pictures by their names, and print the files."""
    files = []
    with place.make_folder() as folder:
        for name, figure in pictures:
            if figure is None:
                print(f"no picture of {name}: the model has none")
                continue
            files.append(write_figure(figure, folder / f"{name}.png"))
            print(files[-1])
    return files


def read_images(cfg: DictConfig, saved: SavedRun, task: TextGeneration, place: Output) -> list[Path]:
    """Draw where the model looks in each image while it writes, and, where it is asked, while it reads the question;
    how image and text look at each other where they are one sequence. Raises as `visualize`."""
    paths = find_images(require_input(cfg, "images"))
    place.check_apart(paths)
    device = find_fastest_device()
    datamodule, writer = saved.datamodule(), ask_question(cfg, task.to(device).eval())
    chosen = [paths[place] for place in pick(len(paths), cfg.num_images)]
    images = load_images(chosen, datamodule)

    def pictures() -> Iterator[tuple[str, Figure]]:
        for number, (path, image) in enumerate(zip(chosen, images, strict=True), start=1):
            view = prepare_images([image], datamodule, device)
            with torch.inference_mode():
                text = writer.generate(*view.arguments(), with_attention=True)
            grid = task.model.encoder.patch_embed.grid if view.grid is None else view.grid
            name = f"{path.name}: {cfg.question}" if cfg.question else path.name
            tokens, title = describe_text(task.vocabulary, name, text.tokens[0])
            words = writer.words if isinstance(writer, QuestionAnswering) else []
            named = {place: word for place, word in enumerate([*words, *tokens]) if word != FILL}
            memory = text.attention.memory[..., list(named), :]
            rows = "read and written" if words else "written"
            yield f"{READING}_{number}", reading_figure(image / 255, grid, memory, list(named.values()), title, rows)
            if isinstance(text.attention, StreamAttentionMaps):
                yield f"{MODALITIES}_{number}", modalities_figure(text.attention.whole, words, tokens, title)

    files = write_pictures(place, pictures())
    tell_others(len(paths), len(chosen), "images")
    return files


def read_texts(cfg: DictConfig, saved: SavedRun, task: TextGeneration, place: Output) -> list[Path]:
    """Draw where words look at each other while texts are read and written. Raises as `visualize`."""
    vocabulary = saved.input_vocabulary
    assert vocabulary is not None
    device = find_fastest_device()
    task = task.to(device).eval()
    reader: Any = task.model.encoder
    found = find_texts(require_input(cfg, "texts"), vocabulary, saved.config.data.input_max_length)

    def pictures() -> Iterator[tuple[str, Figure]]:
        for number, place in enumerate(pick(len(found), cfg.num_images), start=1):
            words, present = text_view([found[place]], vocabulary, device).arguments()
            with torch.inference_mode():
                text = task.generate(words, present, with_attention=True)
                encoder = reader.attention_maps(words, present)
            seen, _ = describe_text(vocabulary, "", words[0])
            tokens, title = describe_text(task.vocabulary, found[place], text.tokens[0])
            yield f"{READING}_{number}", texts_figure(text.attention, encoder, seen, tokens, title)

    files = write_pictures(place, pictures())
    tell_others(len(found), len(files), "texts")
    return files


def describe_text(vocabulary: Vocabulary, name: str, tokens: Tensor) -> tuple[list[str], str]:
    """Give the words of each token of a text (M,), and a title of its name and all of it."""
    numbers = tokens.tolist()
    return [vocabulary.decode([number]) or "end" for number in numbers], f"{name}: {vocabulary.decode(numbers)}"


def compare(cfg: DictConfig, saved: SavedRun, task: Contrastive, place: Output) -> list[Path]:
    """Draw how alike images and texts are; without texts= the names of the run's classes. Raises as `visualize`."""
    if cfg.images is None:
        raise ConfigError(f"the view {SIMILARITIES} needs images=<file, folder or glob>")
    paths = find_images(cfg.images)
    place.check_apart(paths)
    texts = saved.checkpoint["run"]["class_names"]
    if cfg.texts is None and not texts:
        raise ConfigError(f"run={cfg.run} learned from texts and has no class names; set texts=<a file of lines>")
    if cfg.texts is not None:
        texts = find_texts(str(cfg.texts), task.vocabulary, task.max_length)
    device = find_fastest_device()
    datamodule, task = saved.datamodule(), task.to(device).eval()
    chosen = [paths[place] for place in pick(len(paths), cfg.num_images)]
    images = load_images(chosen, datamodule)
    task.templates = ["{}"] if cfg.texts is not None else task.templates
    with torch.inference_mode():
        seen = task.model.encode_images(*prepare_images(images, datamodule, device).arguments())
        cosines = (seen @ task.embed_classes(texts).T).cpu()
    files = write_pictures(
        place, [(SIMILARITIES, similarity_figure([image / 255 for image in images], texts, cosines))]
    )
    tell_others(len(paths), len(chosen), "images")
    return files


def load_images(paths: list[Path], datamodule: ImageDataModule) -> list[Tensor]:
    """Read images as the model was evaluated, (C, H, W) uint8 each. Raises DataError for one that cannot be read."""
    try:
        return [load_pixels(path, datamodule) for path in paths]
    except DataError as error:
        raise DataError(f"{error}; repair or remove the file") from error


def tell_others(there: int, drawn: int, things: str) -> None:
    """Say how many were left out, if any."""
    if there > drawn:
        print(f"{drawn} of {there} {things}; num_images={there} takes all")


def find_likeliest_classes(task: Task, inputs: Tensor, class_names: list[str]) -> list[list[ClassProbability]] | None:
    """Find the most probable classes of images (B, C, H, W); None for a model without classes."""
    if not isinstance(task, Supervised):
        return None
    with eval_mode(task.model):
        return likely(task.probabilities(task.model.forward(inputs)), class_names)


def check_relevance(task: Task, model: VisionTransformer) -> None:
    """Raise ConfigError for a model of which nothing speaks for a class, or not as the view is defined."""
    why = why_no_relevance(model)
    if not isinstance(task, Supervised):
        why = f"it needs classes, but this run was trained without them ({type(task).__name__})"
    if why:
        raise ConfigError(f"views=relevance: {why}; leave it out")


def check_views(views: ListConfig | str | None) -> list[str] | None:
    """Raise ConfigError unless each is a view; null are all that suit the model."""
    if views is None:
        return None
    names = [str(view) for view in views] if isinstance(views, ListConfig) else [str(views)]
    unknown = [name for name in names if name not in KNOWN]
    if unknown or not names:
        also = f"; {READING} draws {MODALITIES}, too" if MODALITIES in unknown else ""
        raise ConfigError(f"views={','.join(unknown) or '[]'} is not among: {', '.join(KNOWN)}{also}")
    return names
