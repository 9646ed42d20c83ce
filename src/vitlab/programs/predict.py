"""Classify new images by a finished run and its own preprocessing.

B batch, C channels, H W image height and width, K classes
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table
from torch import Tensor

from vitlab.atomic_files import write_csv
from vitlab.data import ImageDataModule
from vitlab.data.pools.packed_names import readable
from vitlab.data.sources.named_files import find_images
from vitlab.errors import ConfigError, DataError
from vitlab.out_of_memory import halved, refusing
from vitlab.run.given_images import pixels_of, prepared
from vitlab.run.precision import speed_up_float32_products
from vitlab.run.saved_run import SavedRun
from vitlab.tasks.supervised import Supervised

SHOWN = 20


def predict(cfg: DictConfig) -> list[dict[str, Any]]:
    """Print and save the `top_k` classes of every image, best first, with their probabilities."""
    if cfg.on_bad_image not in ("error", "skip"):
        raise ConfigError(f"on_bad_image '{cfg.on_bad_image}' is not one of: error, skip")
    saved = SavedRun.open(cfg.run)
    paths = find_images(cfg.images)
    names = saved.checkpoint["run"]["class_names"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    speed_up_float32_products(device)
    datamodule, task = saved.datamodule(), saved.task().to(device).eval()
    if not isinstance(task, Supervised):
        raise ConfigError(
            f"run={cfg.run} has learned without classes ({type(task).__name__}); fine-tune a model from it"
        )
    top_k = min(cfg.top_k, len(names))
    rows: list[dict[str, Any]] = []
    skipped = 0
    for start in track(range(0, len(paths), cfg.batch_size), description="predicting", transient=True):
        read = [(path, read_image(path, datamodule)) for path in paths[start : start + cfg.batch_size]]
        for _, image in read:
            if isinstance(image, str) and cfg.on_bad_image == "error":
                raise DataError(f"{image}; mend or remove the file, or set on_bad_image=skip")
        good = [(path, image) for path, image in read if isinstance(image, Tensor)]
        skipped += len(read) - len(good)
        if good:
            view = prepared([image for _, image in good], datamodule, device)
            with refusing(lambda: halved("batch_size", cfg.batch_size)), torch.inference_mode():
                probabilities = task.probabilities(task(*view.arguments()))  # (B, K)
            rows += list(top_classes([path for path, _ in good], probabilities, names, top_k))
    if cfg.output:
        output = Path(cfg.output)
        output.parent.mkdir(parents=True, exist_ok=True)
    else:
        output = saved.new_folder("predict") / "predictions.csv"
    write_csv(output, list(rows[0]) if rows else ["image"], [list(row.values()) for row in rows])
    show(rows, skipped, output)
    return rows


def read_image(path: Path, datamodule: ImageDataModule) -> Tensor | str:
    """Read an image as the model was evaluated, (C, H, W) uint8, or say why it cannot be read."""
    try:
        return pixels_of(path, datamodule)
    except DataError as error:
        return str(error)


def top_classes(paths: list[Path], probabilities: Tensor, names: list[str], top_k: int) -> Iterator[dict[str, Any]]:
    values, classes = probabilities.topk(top_k, dim=1)
    for path, best, which in zip(paths, values.tolist(), classes.tolist(), strict=True):
        row: dict[str, Any] = {"image": readable(str(path))}
        for rank, (value, name) in enumerate(zip(best, which, strict=True), start=1):
            row |= {f"class_{rank}": names[name], f"probability_{rank}": round(value, 6)}
        yield row


def show(rows: list[dict[str, Any]], skipped: int, output: Path) -> None:
    table = Table(Column("image", overflow="fold"), Column("top classes", overflow="fold"))
    for row in rows[:SHOWN]:
        ranks = range(1, len(row) // 2 + 1)
        table.add_row(row["image"], "  ".join(f"{row[f'class_{r}']} {row[f'probability_{r}']:.1%}" for r in ranks))
    console = Console(markup=False)
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"and {len(rows) - SHOWN} more")
    console.print(f"{len(rows)} images, {skipped} skipped; all in {output}", highlight=False, soft_wrap=True)
