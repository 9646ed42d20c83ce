"""Classify new images, or write texts of them, by a finished run and its own preprocessing.

B batch, C channels, H W image height and width, K classes
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track

from vitlab.atomic_files import compute_digest, format_json
from vitlab.config.nodes import resolve_config
from vitlab.data import ImageDataModule
from vitlab.data.batches.batch import TextView, View
from vitlab.data.loading.loader import Loader, choose_num_workers
from vitlab.data.order.sampler import EvaluationOrder
from vitlab.data.pools.packed_names import PackedNames, format_name
from vitlab.data.sources.named_files import find_image_names
from vitlab.errors import ConfigError, DataError
from vitlab.machine import choose_device
from vitlab.out_of_memory import refuse_out_of_memory, suggest_half
from vitlab.reports.tables import print_table
from vitlab.run.hardware.precision import is_bf16, speed_up_float32_products
from vitlab.run.inference.classification import choose_names, classifier
from vitlab.run.inference.generation_options import apply_generation_options
from vitlab.run.inference.given_images import GivenFiles, Read, prepare_images
from vitlab.run.inference.given_texts import ask_question, find_texts, require_input, text_view
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import Output, output_file
from vitlab.run.storage.prediction_file import FAILED, ROW, PredictionFile, check_form, is_unfinished, prediction_file
from vitlab.run.storage.sorting import Sorting
from vitlab.spelling import format_count
from vitlab.tasks import TextGeneration
from vitlab.tasks.answering import QuestionAnswering
from vitlab.tasks.contrastive import ZeroShot
from vitlab.tasks.predictions import DIGITS, Prediction, WrittenText, rank_classes
from vitlab.tasks.supervised import Supervised
from vitlab.vocabulary import Vocabulary

STALL_TIMEOUT = 300  # seconds after which a silent worker counts as stuck
OF_THIS_START = ("device", "num_workers", "batch_size", "overwrite", "trust")  # keys that change no row
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
MOST_ROWS = 20
MUCH = 0.2  # share of images of none of the classes, above which a line warns
ON_BAD_IMAGE = ("report", "skip", "error")
WRITERS = (TextGeneration, QuestionAnswering)  # what writes texts, and needs no names
Said = Prediction | WrittenText
Lines = list[tuple[str, dict[str, Any]]]


def predict(cfg: DictConfig) -> Path:
    """Write the `top_k` classes of every image, best first, with their probabilities; or the text that is written of
    it, with the probability of each token. Print the first ones, and return the file.

    Raises DataError, with all else written, for images that cannot be read, unless on_bad_image=skip.
    """
    if cfg.on_bad_image not in ON_BAD_IMAGE:
        raise ConfigError(f"on_bad_image '{cfg.on_bad_image}' is not one of: {', '.join(ON_BAD_IMAGE)}")
    saved = apply_generation_options(SavedRun.open(cfg.run), cfg)
    may_replace = cfg.overwrite or is_unfinished(cfg.output)
    output = output_file(cfg.output, "predict", saved.folder / "predict", "predictions.csv", overwrite=may_replace)
    check_form(output.path)
    names, device = choose_names(saved, cfg.labels), choose_device(cfg.device)
    speed_up_float32_products(device)
    if saved.input_vocabulary is not None:
        return predict_texts(cfg, saved, saved.input_vocabulary, output, device)
    files = share(find_image_names(require_input(cfg, "images")), cfg.share)
    output.check_apart(map(Path, files))
    datamodule, task = saved.datamodule(), classifier(saved.task().to(device).eval(), names)
    if not isinstance(task, Supervised | TextGeneration | ZeroShot):
        raise ConfigError(
            f"run={cfg.run} was trained without classes ({type(task).__name__}); fine-tune a model from it"
        )
    task = ask_question(cfg, task)
    faster = torch.autocast(device.type, torch.bfloat16, enabled=is_bf16(cfg.precision))
    sorting = Sorting.open(cfg.sort_into, files, names) if cfg.sort_into is not None else None
    if sorting is not None and isinstance(task, WRITERS):
        raise ConfigError(f"sort_into= needs classes, but run={cfg.run} writes texts; leave it out")

    def describe(view: View, paths: list[Path]) -> list[Said]:
        with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), torch.inference_mode(), faster:
            if isinstance(task, WRITERS):
                return list(write_texts(task, view))
            if isinstance(task, Supervised):
                logits, novelty = task.classify(*view.arguments())
            else:
                logits, novelty = task(*view.arguments()), None
            return list(rank_classes(task.probabilities(logits), names, cfg.top_k, paths, novelty))

    with prediction_file(output, describe_request(cfg, saved, list_digest(files)), overwrite=cfg.overwrite) as file:
        tell_continued(file, len(files))
        table = Shown("image")
        for read in read_files(files, datamodule, cfg, file.done, device):
            paths = [Path(files[place]) for place in read.places if place not in read.reasons]
            said = describe(prepare_images(read.pixels, datamodule, device), paths) if paths else []
            for path, one in zip(paths, said, strict=True):
                table.add(format_name(str(path)), one)
                if sorting is not None and isinstance(one, Prediction):
                    sorting.copy(path, None if one.none_of_these else one.class_name)
            file.add(format_lines(read, files, iter(said), cfg.on_bad_image))
        notes = [calibration_note(saved)] if isinstance(task, Supervised) else []
        notes += [f"copies of the images by class are in {sorting.root}"] if sorting is not None else []
        return close(file, table, "image", cfg.on_bad_image, notes)


def tell_continued(file: PredictionFile, count: int) -> None:
    if file.done:
        print(f"continued after {file.done} of {count}, which an earlier start has done")


def calibration_note(saved: SavedRun) -> str:
    if saved.temperature is None:
        return (
            "the probabilities are not calibrated, and images of none of the classes are not found: these weights were "
            "not tested by their run"
        )
    return f"the probabilities are calibrated on the validation split (temperature {saved.temperature:.3f})"


def share(files: PackedNames, part: str | None) -> PackedNames:
    """Take one of several parts of the files, as "2/4" names the second of four. Raises ConfigError."""
    if part is None:
        return files
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"share={part} is not a part of several; for the second of four, set share=2/4")
    return PackedNames.pack(files[k] for k in range(int(found[1]) - 1, len(files), int(found[2])))


def list_digest(files: PackedNames) -> str:
    return compute_digest(files.block.tobytes() + files.offsets.tobytes())


def describe_request(cfg: DictConfig, saved: SavedRun, inputs: str) -> dict[str, Any]:
    """Say in plain types what decides the rows of the output."""
    written = os.stat(saved.path).st_mtime_ns
    asked_for = {key: value for key, value in resolve_config(cfg).items() if key not in OF_THIS_START}
    return {**asked_for, "run": str(saved.path.absolute()), "written": written, "inputs": inputs}


def read_files(
    files: Sequence[str], datamodule: ImageDataModule, cfg: DictConfig, done: int, device: torch.device
) -> Iterator[Read]:
    """Read the files that are not `done`, batch by batch, in worker processes if there are many."""
    workers = choose_num_workers(cfg.num_workers, processes=1) if len(files) - done > cfg.batch_size else 0
    places = range(done, len(files))
    order = EvaluationOrder(len(files), batch_size=cfg.batch_size, rank=0, world_size=1, places=places)
    loader = Loader(
        GivenFiles(files, datamodule),
        order,
        num_workers=workers,
        prefetch_batches=2,
        stall_timeout=STALL_TIMEOUT,
        device=torch.device("cpu"),  # `prepare_images` copies
    )
    with Progress(*COLUMNS, transient=True) as progress:
        bar = progress.add_task("predicting", total=len(files), completed=done)
        for read in loader:
            yield read
            progress.advance(bar, len(read.places))


def format_lines(read: Read, files: Sequence[str], said: Iterator[Said], on_bad_image: str) -> Lines:
    """Write a line for each file of a batch, in their order. Raises DataError for an unreadable one if that is to end
    the command."""
    lines: Lines = []
    for place in read.places:
        name = format_name(files[place])
        if place not in read.reasons:
            lines.append((ROW, {"image": name, **next(said).columns()}))
        elif on_bad_image == "error":
            raise DataError(f"{read.reasons[place]}; repair or remove the file, or leave out on_bad_image=error")
        else:
            lines.append((FAILED, {"image": name, "reason": read.reasons[place]}))
    return lines


def predict_texts(
    cfg: DictConfig, saved: SavedRun, vocabulary: Vocabulary, output: Output, device: torch.device
) -> Path:
    """Write what is written of each text."""
    texts = find_texts(require_input(cfg, "texts"), vocabulary, saved.config.data.input_max_length)
    task = ask_question(cfg, saved.task().to(device).eval())
    with prediction_file(
        output, describe_request(cfg, saved, compute_digest(format_json(texts))), overwrite=cfg.overwrite
    ) as file:
        tell_continued(file, len(texts))
        table = Shown("read")
        for start in track(range(file.done, len(texts), cfg.batch_size), description="predicting", transient=True):
            part = texts[start : start + cfg.batch_size]
            with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), torch.inference_mode():
                said = list(write_texts(task, text_view(part, vocabulary, device)))
            for text, one in zip(part, said, strict=True):
                table.add(text, one)
            file.add((ROW, {"read": text, **one.columns()}) for text, one in zip(part, said, strict=True))
        return close(file, table, "text", cfg.on_bad_image)


class Shown:
    """The first rows of a start, as the terminal shows them; `kind` is what was read, "image" or "read"."""

    def __init__(self, kind: str):
        self.kind = kind
        self.rows: list[tuple[str, str]] = []
        self.head = "top classes"
        self.count = self.unknown = 0

    def add(self, read: str, said: Said) -> None:
        self.count += 1
        self.unknown += isinstance(said, Prediction) and said.none_of_these
        if len(self.rows) < MOST_ROWS:
            self.head = "text" if isinstance(said, WrittenText) else self.head
            self.rows.append((read, str(said)))

    def warn_of_unknown(self) -> list[str]:
        """Count the images of none of the classes, and say what to look at where they are many more than would be taken
        for that by mistake."""
        if not self.unknown:
            return []
        told = f"{self.unknown} of {self.count} images: probably none of these classes"
        much = (
            ", so their probabilities mean little; compare size, colours and background with "
            "pictures/training_batch.png of the run"
        )
        return [told + much * (self.unknown > MUCH * self.count)]


def close(file: PredictionFile, table: Shown, thing: str, on_bad_image: str, notes: Sequence[str] = ()) -> Path:
    """Finish the file, print the first rows, and say how many there are. Raises DataError for files that could not be
    read, unless they are to be skipped."""
    count, first = file.finish(table.kind)
    failed = file.done - count
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    print_table([table.kind, table.head], table.rows)
    if count > len(table.rows):
        console.print(f"and {count - len(table.rows)} more")
    console.print(f"{format_count(count, thing)}, {failed} unreadable; all in {file.path}")
    for note in (*notes, *table.warn_of_unknown()):
        console.print(note)
    if first is not None and on_bad_image == "report":
        raise DataError(
            f"{failed} of {file.done} images cannot be read, such as {first['image']}; {file.failed} lists them with "
            f"reasons, and {file.path} has all other images"
        )
    return file.path


def write_texts(task: TextGeneration | QuestionAnswering, view: View | TextView) -> Iterator[WrittenText]:
    """Write a text of each sample."""
    written = task.generate(*view.arguments())
    vocabulary = task.vocabulary
    rows = zip(written.tokens.tolist(), written.present.tolist(), written.log_probs.exp().tolist(), strict=True)
    for tokens, present, probabilities in rows:
        yield WrittenText(
            vocabulary.decode(tokens),
            tuple(
                (vocabulary.decode([token]), round(p, DIGITS))
                for token, there, p in zip(tokens, present, probabilities, strict=True)
                if there
            ),
        )
