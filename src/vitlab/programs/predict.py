"""Classify new images, or write texts of them, by a finished run and its own preprocessing.

B batch, C channels, H W image height and width, K classes
"""

from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from vitlab.atomic_files import write_csv
from vitlab.data.batches.batch import TextView, View
from vitlab.data.pools.packed_names import readable
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.machine import fastest_device
from vitlab.out_of_memory import refuse_out_of_memory, suggest_half
from vitlab.run.hardware.precision import speed_up_float32_products
from vitlab.run.inference.classification import choose_names, classifier
from vitlab.run.inference.generation_options import with_generation_options
from vitlab.run.inference.given_images import pixels_of, prepared
from vitlab.run.inference.given_texts import asked, find_texts, named, text_view
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import Output, output_file
from vitlab.tasks import TextGeneration
from vitlab.tasks.answering import Asking
from vitlab.tasks.contrastive import ZeroShot
from vitlab.tasks.predictions import DIGITS, Prediction, WrittenText, rank_classes
from vitlab.tasks.supervised import Supervised
from vitlab.vocabulary import Vocabulary

SHOWN = 20
Rows = list[tuple[str, Prediction | WrittenText]]  # what was read, and what the model says of it
WRITERS = (TextGeneration, Asking)  # what writes texts, and needs no names


def predict(cfg: DictConfig) -> list[dict[str, Any]]:
    """Print and save the `top_k` classes of every image, best first, with their probabilities; or the text that is
    written of it, with that of each token."""
    if cfg.on_bad_image not in ("error", "skip"):
        raise ConfigError(f"on_bad_image '{cfg.on_bad_image}' is not one of: error, skip")
    saved = with_generation_options(SavedRun.open(cfg.run), cfg)
    output = output_file(cfg.output, "predict", saved.folder / "predict", "predictions.csv", overwrite=cfg.overwrite)
    names = choose_names(saved, cfg.labels)
    if saved.input_vocabulary is not None:
        return predict_of_texts(cfg, saved, saved.input_vocabulary, output)
    paths = find_images(named(cfg, "images"))
    output.check_apart(paths)
    device = fastest_device()
    speed_up_float32_products(device)
    datamodule, task = saved.datamodule(), classifier(saved.task().to(device).eval(), names)
    if not isinstance(task, Supervised | TextGeneration | ZeroShot):
        raise ConfigError(
            f"run={cfg.run} has learned without classes ({type(task).__name__}); fine-tune a model from it"
        )
    task = asked(cfg, task)
    rows: Rows = []
    skipped = 0
    for start in track(range(0, len(paths), cfg.batch_size), description="predicting", transient=True):
        good = []
        for path in paths[start : start + cfg.batch_size]:
            try:
                good.append((path, pixels_of(path, datamodule)))
            except DataError as error:
                if cfg.on_bad_image == "error":
                    raise DataError(f"{error}; mend or remove the file, or set on_bad_image=skip") from error
                skipped += 1
        if good:
            view = prepared([image for _, image in good], datamodule, device)
            with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), torch.inference_mode():
                files = [path for path, _ in good]
                if isinstance(task, WRITERS):
                    found: list[Any] = list(write_texts(task, view))
                else:
                    found = list(rank_classes(task.probabilities(task(*view.arguments())), names, cfg.top_k, files))
                rows += [(readable(str(path)), row) for path, row in zip(files, found, strict=True)]
    return save(output, "image", rows, f"{len(rows)} images, {skipped} skipped")


def predict_of_texts(cfg: DictConfig, saved: SavedRun, vocabulary: Vocabulary, output: Output) -> list[dict[str, Any]]:
    """Print and save what is written of each text."""
    read = find_texts(named(cfg, "texts"), vocabulary, saved.config.data.input_max_length)
    device = fastest_device()
    speed_up_float32_products(device)
    task = asked(cfg, saved.task().to(device).eval())
    rows: Rows = []
    for start in range(0, len(read), cfg.batch_size):
        part = read[start : start + cfg.batch_size]
        with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), torch.inference_mode():
            rows += zip(part, write_texts(task, text_view(part, vocabulary, device)), strict=True)
    return save(output, "read", rows, f"{len(rows)} texts")


def save(output: Output, kind: str, rows: Rows, count: str) -> list[dict[str, Any]]:
    """Write the rows of what was read, `kind` of it ("image" or "read"), print the first of them, and say how many
    there are. Returns the columns of each."""
    path = output.make()
    columns: list[dict[str, Any]] = [{kind: read, **row.columns()} for read, row in rows]
    write_csv(path, list(columns[0]) if columns else [kind], [list(row.values()) for row in columns])
    head = "text" if rows and isinstance(rows[0][1], WrittenText) else "top classes"
    table = Table(*(Column(name, overflow="fold") for name in (kind, head)))
    for read, row in rows[:SHOWN]:
        table.add_row(read, str(row))
    console = Console(markup=False, emoji=False)
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"and {len(rows) - SHOWN} more")
    console.print(f"{count}; all in {path}", highlight=False, soft_wrap=True)
    return columns


def write_texts(task: TextGeneration | Asking, view: View | TextView) -> Iterator[WrittenText]:
    """Write a text of each sample."""
    written = task.written(*view.arguments())
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
