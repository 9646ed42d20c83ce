"""Classify new images, or write texts of them, by a finished run and its own preprocessing.

B batch, C channels, H W image height and width, K classes
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
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
from vitlab.run.inference.classification import best_names, classifier, names_for
from vitlab.run.inference.generation_options import with_writing
from vitlab.run.inference.given_images import pixels_of, prepared
from vitlab.run.inference.given_texts import asked, find_texts, named, text_view
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import Output, output_file
from vitlab.tasks import TextGeneration
from vitlab.tasks.answering import Asking
from vitlab.tasks.contrastive import ZeroShot
from vitlab.tasks.supervised import Supervised
from vitlab.vocabulary import Vocabulary

SHOWN = 20
WRITERS = (TextGeneration, Asking)  # what writes texts, and needs no names


def predict(cfg: DictConfig) -> list[dict[str, Any]]:
    """Print and save the `top_k` classes of every image, best first, with their probabilities; or the text that is
    written of it, with that of each token."""
    if cfg.on_bad_image not in ("error", "skip"):
        raise ConfigError(f"on_bad_image '{cfg.on_bad_image}' is not one of: error, skip")
    saved = with_writing(SavedRun.open(cfg.run), cfg)
    output = output_file(cfg.output, "predict", saved.folder / "predict", "predictions.csv", overwrite=cfg.overwrite)
    names = names_for(saved, cfg.labels)
    if saved.input_vocabulary is not None:
        return predict_of_texts(cfg, saved, saved.input_vocabulary, output)
    paths = find_images(named(cfg, "images"))
    device = fastest_device()
    speed_up_float32_products(device)
    datamodule, task = saved.datamodule(), classifier(saved.task().to(device).eval(), names)
    if not isinstance(task, Supervised | TextGeneration | ZeroShot):
        raise ConfigError(
            f"run={cfg.run} has learned without classes ({type(task).__name__}); fine-tune a model from it"
        )
    task = asked(cfg, task)
    rows: list[dict[str, Any]] = []
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
                said = texts(task, view) if isinstance(task, WRITERS) else classes(task, view, names, cfg.top_k)
                rows += [{"image": readable(str(path))} | row for (path, _), row in zip(good, said, strict=True)]
    save(output, rows, f"{len(rows)} images, {skipped} skipped")
    return rows


def predict_of_texts(cfg: DictConfig, saved: SavedRun, vocabulary: Vocabulary, output: Output) -> list[dict[str, Any]]:
    """Print and save what is written of each text."""
    read = find_texts(named(cfg, "texts"), vocabulary, saved.config.data.input_max_length)
    device = fastest_device()
    speed_up_float32_products(device)
    task = asked(cfg, saved.task().to(device).eval())
    rows: list[dict[str, Any]] = []
    for start in range(0, len(read), cfg.batch_size):
        part = read[start : start + cfg.batch_size]
        with refuse_out_of_memory(lambda: suggest_half("batch_size", cfg.batch_size)), torch.inference_mode():
            said = texts(task, text_view(part, vocabulary, device))
            rows += [{"read": text} | row for text, row in zip(part, said, strict=True)]
    save(output, rows, f"{len(rows)} texts")
    return rows


def save(output: Output, rows: list[dict[str, Any]], count: str) -> None:
    """Write the rows, print the first of them, and say how many there are."""
    path = output.make()
    write_csv(path, list(rows[0]) if rows else ["image"], [list(row.values()) for row in rows])
    show(rows, count, path)


def classes(task: Supervised | ZeroShot, view: View, names: list[str], top_k: int) -> Iterator[dict[str, Any]]:
    for best in best_names(task.probabilities(task(*view.arguments())), names, top_k):
        row: dict[str, Any] = {}
        for rank, (name, probability) in enumerate(best, start=1):
            row |= {f"class_{rank}": name, f"probability_{rank}": round(probability, 6)}
        yield row


def texts(task: TextGeneration | Asking, view: View | TextView) -> Iterator[dict[str, Any]]:
    """Write texts, and give each with its probability, and that of each of its tokens, the last of which is its end."""
    written = task.written(*view.arguments())
    vocabulary = task.vocabulary
    rows = zip(written.tokens.tolist(), written.present.tolist(), written.log_probs.exp().tolist(), strict=True)
    for tokens, present, probabilities in rows:
        parts = [
            [vocabulary.decode([token]), round(p, 6)]
            for token, there, p in zip(tokens, present, probabilities, strict=True)
            if there
        ]
        whole = math.prod(p for _, p in parts)
        yield {"text": vocabulary.decode(tokens), "probability": round(whole, 6), "tokens": json.dumps(parts)}


def told(row: dict[str, Any]) -> str:
    """Say a row in words, without what was read."""
    if "text" in row:
        parts = "  ".join(f"{part or 'end'} {p:.1%}" for part, p in json.loads(row["tokens"]))
        return f"{row['text']}   {row['probability']:.1%}   ({parts})"
    ranks = range(1, len(row) // 2 + 1)
    return "  ".join(f"{row[f'class_{r}']} {row[f'probability_{r}']:.1%}" for r in ranks)


def show(rows: list[dict[str, Any]], count: str, output: Path) -> None:
    heads = next(iter(rows[0])) if rows else "image", "text" if rows and "text" in rows[0] else "top classes"
    table = Table(*(Column(head, overflow="fold") for head in heads))
    for row in rows[:SHOWN]:
        table.add_row(next(iter(row.values())), told(row))
    console = Console(markup=False, emoji=False)
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"and {len(rows) - SHOWN} more")
    console.print(f"{count}; all in {output}", highlight=False, soft_wrap=True)
