"""Give the commands to go on with after a run, as they can be typed: about a file, text or question of its data."""

import os
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any
from unicodedata import category

import numpy as np
from omegaconf import DictConfig
from PIL import Image

from vitlab.atomic_files import write_whole
from vitlab.checkpoints.run_folder import find_model, has_state
from vitlab.config.arguments import format_override
from vitlab.config.nodes import resolve_config
from vitlab.config.stated import find_changed_values, find_encoder
from vitlab.config.trust import list_packages
from vitlab.data import DataModule
from vitlab.data.images.decoding import DAMAGE
from vitlab.data.targets import Classes, SeveralClasses
from vitlab.errors import CheckpointError
from vitlab.invocation import format_command, shorten_path
from vitlab.models import Transformer
from vitlab.run.building.parts import Parts
from vitlab.run.storage.start import Start
from vitlab.tasks import Answering, Contrastive, Task, TextGeneration
from vitlab.tasks.supervised import Supervised

MOST = 1000  # samples among which one is looked for
SHORT = 60  # letters of a text that is printed rather than a longer one
SAMPLE = "test_image"  # the name of a file
NO_ARCHITECTURE = ("initialization", "head_", "drop_", "attn_drop_rate", "pretrained", "published")
OF_THE_MACHINE = ("loading", "cache", "order", "global_batch_size", "device_batch_size")


def next_steps(start: Start, parts: Parts) -> dict[str, str]:
    """Say where the run lies, and give the commands to go on with; none where the run has kept no state."""
    folder, task, run = start.folder, parts.task, str(shorten_path(start.folder))
    packages = list_packages(resolve_config(start.cfg))
    trust = [quote(f"trust=[{','.join(packages)}]")] if packages else []
    told = {"folder": run}
    if (folder / "pictures").is_dir():
        told["pictures"] = str(shorten_path(folder / "pictures"))
    try:
        find_model(folder)
    except CheckpointError:
        return told
    told["evaluate"] = " ".join([format_command("evaluate"), format_override("run", run), *trust])
    if isinstance(task, Supervised | TextGeneration | Contrastive):
        words = [format_override("run", run), *words_to_predict(parts.datamodule, task, folder)]
        told["predict"] = " ".join([format_command("predict"), *words, *trust])
    else:
        words = [*words_to_fine_tune(start, parts), format_override("model.pretrained", run)]
        told["fine-tune"] = " ".join([format_command("train"), *words, *trust])
    told["report"] = " ".join([format_command("report"), format_override("runs", [run]), *trust])
    if has_state(folder):
        words = [format_override("resume", run), suggest_longer(start.cfg.trainer)]
        told["go on"] = " ".join([format_command("train"), *words, *trust])
    return told


def describe_complete(start: Start) -> str:
    """Say that nothing is left to do for a run, and what would train it on."""
    longer = suggest_longer(start.cfg.trainer)
    return f"{shorten_path(start.folder)} is complete; to train it for longer, add {longer}"


def words_to_predict(datamodule: DataModule, task: Task, folder: Path) -> list[str]:
    """Name a sample of the test; an image that is no file becomes one, in the run's folder."""
    split = datamodule.splits["test"]
    if isinstance(task.model, Transformer):
        texts = [text for text in split.read.values[:MOST] if can_be_typed(text) and not os.path.exists(text)]
        text = min(texts, key=lambda text: ("\n" in text, len(text) > SHORT), default=None)  # the first of the best
        return ["texts=<a text, or a file of lines>" if text is None else format_override("texts", text)]
    places = [k for k in range(min(len(split), MOST)) if k not in datamodule.skipped["test"]]
    file = find_file(split, places) or write_file(split, places, folder)
    words = ["images=<file, folder or glob>" if file is None else format_override("images", file)]
    if isinstance(task, Answering):
        questions = (asked for k in places if can_be_typed(asked := split.get_question(k)))
        words += [format_override("question", question) for question in islice(questions, 1)]
    if isinstance(task, Contrastive) and not task.has_classes:
        labels = list(islice(list_labels(split, places, task), 2))
        words.append(format_override("labels", labels if len(labels) == 2 else ["cat", "dog"]))
    return words


def can_be_typed(text: str) -> bool:
    """Whether a terminal shows all of a text, and changes nothing in it."""
    return all(letter.isprintable() or letter == "\n" or category(letter) == "Zs" for letter in text)


def find_file(split: Any, places: list[int]) -> str | None:
    """Find a file with a name that can be typed."""
    return next((name for k in places if (name := split.name(k)).isprintable() and os.path.isfile(name)), None)


def write_file(split: Any, places: list[int], folder: Path) -> str | None:
    """Write an image as it is stored to a file. None for one that no kind of file holds."""
    try:
        stored = split.pool.load(int(split.indices[places[0]]))
        content = BytesIO() if isinstance(stored, np.ndarray) else BytesIO(stored)
        if isinstance(stored, np.ndarray):
            Image.fromarray(stored[..., 0] if stored.shape[2:] == (1,) else stored).save(content, "PNG")
        file = folder / f"{SAMPLE}.{str(Image.open(content).format).lower()}"
    except (*DAMAGE, TypeError, IndexError):
        return None
    write_whole(file, content.getvalue())
    return str(shorten_path(file))


def list_labels(split: Any, places: list[int], task: Contrastive) -> Iterator[str]:
    """Yield texts that the model tells apart, and has room for in every template."""
    read = set()
    for text in (split.words(k, []).strip() for k in places):
        fits = all(len(task.vocabulary.encode(t.replace("{}", text))) <= task.max_length for t in task.templates)
        pieces = tuple(task.vocabulary.encode(text))
        if can_be_typed(text) and fits and pieces not in read:
            read.add(pieces)
            yield text


def words_to_fine_tune(start: Start, parts: Parts) -> list[str]:
    """Name the model that a pre-trained encoder is, and its data, where these have classes."""
    cfg, targets = start.cfg, parts.datamodule.targets
    encoder = find_encoder(start.choices["model"])
    words = ["model=<the encoder's>"]
    if encoder is not None:
        words = [f"model={encoder}", *changes("model", encoder, cfg.model.encoder, NO_ARCHITECTURE)]
    if not isinstance(targets, Classes):
        return [*words, "data=<images with classes>"]
    data = start.choices["data"]
    task = ["task=multilabel"] if isinstance(targets, SeveralClasses) else []
    return [*task, *words, f"data={data}", *changes("data", data, cfg.data, OF_THE_MACHINE)]


def changes(group: str, option: str, node: DictConfig, but: tuple[str, ...]) -> list[str]:
    """Write what a node of the run has in place of what its option states, but for keys that begin so."""
    values = find_changed_values(group, option, node)
    return [format_override(f"{group}.{key}", value) for key, value in values.items() if not key.startswith(but)]


def suggest_longer(trainer: DictConfig) -> str:
    """Give the override that makes a run twice as long."""
    if trainer.max_steps >= 0:
        return f"trainer.max_epochs=-1 trainer.max_steps={2 * trainer.max_steps}"
    return f"trainer.max_epochs={2 * trainer.max_epochs}"
