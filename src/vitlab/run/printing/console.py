"""Print the start and the result of a run, as tables."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console
from rich.table import Table

from vitlab import atomic_files
from vitlab.config.arguments import format_override
from vitlab.config.found import OPEN_KEYS
from vitlab.data import DataModule
from vitlab.data.targets import Classes, SeveralClasses
from vitlab.monitors import format_metric
from vitlab.run.building.autoconfig import ResolvedRun
from vitlab.run.building.parts import Parts

MOST_LETTERS = 500  # of a value that is printed as it could be typed
LOG = logging.getLogger(__name__)  # train.log of the run's folder


@rank_zero_only
def print_start(found: ResolvedRun, run: Parts) -> None:
    """Print model, data, steps and parameter groups, before the first batch."""
    trainer, datamodule, task = run.trainer, run.datamodule, run.task
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in datamodule.splits.items())
    tail = len(datamodule.splits["train"]) % datamodule.global_batch_size
    devices = f"{trainer.world_size} x {type(trainer.accelerator).__name__.removesuffix('Accelerator').lower()}"
    console = Console(soft_wrap=True, record=True, markup=False, emoji=False)
    parts = f", in {n} parts each" if (n := trainer.accumulate_grad_batches) > 1 else ""
    rows = {
        "run": f"{found.cfg.name}, {sum(p.numel() for p in task.model.parameters()):,} parameters",
        "data": f"{sizes} {datamodule.things}" + (f"; each epoch leaves out {tail}, chosen anew" if tail else ""),
        "classes": classes(datamodule),
        **({"found": format_found(found.values, found.size_reason)} if found.values else {}),
        **({"repeated": repeated} if (repeated := getattr(datamodule.source, "repeated", "")) else {}),
        "steps": f"{task.num_steps:,} of {datamodule.global_batch_size} {datamodule.things} "
        f"({datamodule.count_steps_per_epoch()} an epoch{parts})",
        **({"measured": found.measured} if found.measured else {}),
        "device": f"{devices}, precision {trainer.precision}",
        "folder": str(trainer.default_root_dir),
    }
    for name, value in rows.items():
        console.print(f"{name:<9}{value}", highlight=False)
    groups = Table("parameters", "tensors", "elements", "lr", "weight decay", box=None, pad_edge=False)
    for group in task.groups:
        elements = sum(p.numel() for p in group["params"])
        groups.add_row(
            group["name"],
            str(len(group["params"])),
            f"{elements:,}",
            f"{group['lr']:.3g}",
            f"{group['weight_decay']:g}",
        )
    learning = {id(p) for group in task.groups for p in group["params"]}
    if frozen := [p.numel() for p in task.parameters() if id(p) not in learning]:
        groups.add_row("frozen", str(len(frozen)), f"{sum(frozen):,}", "", "")
    console.print(groups)
    LOG.info("start\n%s", console.export_text().rstrip())


def format_found(values: Mapping[str, Any], size_reason: str = "") -> str:
    """Write the values that were found as they could be typed, then the reason for the size of the images. Values that
    are too long, or cannot be printed, are in config.yaml only."""
    typed = " ".join(
        format_override(OPEN_KEYS[key], value)
        if len(str(value)) <= MOST_LETTERS and str(value).isprintable()
        else f"{OPEN_KEYS[key]}=…"
        for key, value in values.items()
    )
    return f"{typed}; {size_reason}" if size_reason else typed


def classes(datamodule: DataModule) -> str:
    """Say how many classes there are, and how many training images each has."""
    if not isinstance(datamodule.targets, Classes):
        told = f"{datamodule.things} {datamodule.targets.kind}"
        names = datamodule.class_names
        return f"{len(names):,}, told by their names: {told}" if names else f"none: {told}"
    counts, shares = datamodule.class_counts(), datamodule.class_shares()
    told = f"{datamodule.num_classes:,}, of {format_range(counts)} training images each"
    if isinstance(datamodule.targets, SeveralClasses):
        return f"{told}, several an image"
    return f"{told}, balanced: {format_range(shares)} an epoch" if datamodule.order.class_balance else told


def format_range(numbers: Any) -> str:
    least, most = f"{numbers.min():,}", f"{numbers.max():,}"
    return least if least == most else f"{least} to {most}"


@rank_zero_only
def print_result(metrics: dict[str, float], facts: dict[str, str], commands: dict[str, str]) -> None:
    """Print metrics, then where things are, then the commands to go on with."""
    console = Console(soft_wrap=True, record=True, markup=False, emoji=False)
    table = Table("metric", "value", title="result", title_justify="left")
    for name, value in metrics.items():
        table.add_row(name, "–" if math.isnan(value) else format_metric(name, value))
    console.print(table)
    for name, line in {**facts, **commands}.items():
        console.print(f"{name:<10} {line}", highlight=False)
    LOG.info("%s", console.export_text().rstrip())


@rank_zero_only
def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain values, with null for a number that JSON has not: NaN, as of a group without samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_json(path, replace_unknown(content))


def replace_unknown(value: Any) -> Any:
    """Put None in place of all that is NaN or infinite below a value."""
    if isinstance(value, dict):
        return {key: replace_unknown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_unknown(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
