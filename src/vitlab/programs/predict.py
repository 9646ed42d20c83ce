"""The classes of new images, by a finished run and its own preprocessing.

B batch, C channels, H W image height and width, K classes
"""

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from vitlab.atomic_files import write_csv
from vitlab.data import ImageDataModule
from vitlab.data.batches.raw_batch import Sample, collate
from vitlab.data.images.decoding import DAMAGE, MODES
from vitlab.data.loading.dataset import evaluated_image
from vitlab.data.pools.file_content import content
from vitlab.data.pools.packed_names import readable
from vitlab.data.sources.folder import EXTENSIONS, image_files
from vitlab.errors import ConfigError, DataError
from vitlab.out_of_memory import halved, refusing
from vitlab.run.precision import speed_up_float32_products
from vitlab.run.saved_run import SavedRun
from vitlab.tasks.supervised import Supervised

SHOWN = 20
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


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
                raise DataError(f"cannot read {image}; mend or remove the file, or set on_bad_image=skip")
        good = [(path, image) for path, image in read if isinstance(image, Tensor)]
        skipped += len(read) - len(good)
        if good:
            samples = [Sample((image,), place) for place, (_, image) in enumerate(good)]
            batch = collate(samples, None, datamodule.images.eval_crop.mixed_patch_size())
            batch = datamodule.transfer_batch_to_device(batch, device, 0)
            with refusing(lambda: halved("batch_size", cfg.batch_size)), torch.inference_mode():
                view = datamodule.preprocessing.finished(batch).view
                probabilities = task.probabilities(task(*view.arguments()))  # (B, K)
            rows += list(top_classes([path for path, _ in good], probabilities, names, top_k))
    output = Path(cfg.output) if cfg.output else saved.folder / "predictions.csv"
    output.parent.mkdir(parents=True, exist_ok=True)
    write_csv(output, list(rows[0]) if rows else ["image"], [list(row.values()) for row in rows])
    show(rows, skipped, output)
    return rows


def find_images(images: str) -> list[Path]:
    """The files that a file, a folder or a glob names, sorted. Raises DataError when there is none."""
    path = Path(images)
    if path.is_dir():
        found = [Path(name) for name, _ in image_files(path)]
    elif path.is_file():
        found = [path]
    else:
        named = {Path(name) for pattern in alternatives(images) for name in glob.glob(pattern, recursive=True)}
        found = sorted(p for p in named if p.suffix.lower() in EXTENSIONS and not p.is_dir())
    if not found:
        raise DataError(f"images={images} names no image file; give a file, a folder or a glob such as 'photos/*.jpg'")
    return found


def alternatives(pattern: str) -> list[str]:
    """The globs that one with braces stands for: *.{png,jpg} is *.png and *.jpg."""
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [one for choice in braces[1].split(",") for one in alternatives(f"{before}{choice}{after}")]


def read_image(path: Path, datamodule: ImageDataModule) -> Tensor | str:
    """(C, H, W) uint8 as the model was evaluated on, or why it cannot be read."""
    try:
        mode = datamodule.images.mode or MODES.get(datamodule.in_chans)
        return evaluated_image(content(path), datamodule.images.eval_crop, mode)
    except DAMAGE as error:
        return f"{path}: {error}"


def top_classes(paths: list[Path], probabilities: Tensor, names: list[str], top_k: int) -> Iterator[dict[str, Any]]:
    values, classes = probabilities.topk(top_k, dim=1)
    for path, best, which in zip(paths, values.tolist(), classes.tolist(), strict=True):
        row: dict[str, Any] = {"image": readable(str(path))}
        for rank, (value, name) in enumerate(zip(best, which, strict=True), start=1):
            row |= {f"class_{rank}": names[name], f"probability_{rank}": round(value, 6)}
        yield row


def show(rows: list[dict[str, Any]], skipped: int, output: Path) -> None:
    table = Table("image", "top classes")
    for row in rows[:SHOWN]:
        ranks = range(1, len(row) // 2 + 1)
        table.add_row(row["image"], "  ".join(f"{row[f'class_{r}']} {row[f'probability_{r}']:.1%}" for r in ranks))
    console = Console(markup=False)
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"and {len(rows) - SHOWN} more")
    console.print(f"{len(rows)} images, {skipped} skipped; all in {output}", highlight=False, soft_wrap=True)
