"""Make a finished classifier smaller and faster: measure int8 weights and merged tokens, and keep the best file."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from vitlab.atomic_files import write_csv, write_folder_atomically
from vitlab.bundles.formats import check_libraries, write_onnx
from vitlab.bundles.graph import Graph, ImageClassifier, Scorer
from vitlab.bundles.proof import FLOAT32, INT8
from vitlab.bundles.writing import FORMS
from vitlab.callbacks.figures import write_figure
from vitlab.compression.candidates import Candidate, Classifier, Quantize, Skipped, build_candidates
from vitlab.compression.comparison import MEGABYTE, Comparison, Score, limit_flips, score_candidates
from vitlab.compression.latency import Latency, count_turns, measure_latency
from vitlab.config.nodes import resolve_config
from vitlab.data import ImageDataModule
from vitlab.data.evaluation import evaluation_batches
from vitlab.errors import ConfigError
from vitlab.machine import describe_cpu
from vitlab.programs.export import export_graphs
from vitlab.reports.tables import list_columns
from vitlab.run.inference.saved_classifier import open_classifier, open_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.printing import console
from vitlab.run.storage.output import output_folder
from vitlab.tasks.supervised import Supervised

CPU = torch.device("cpu")


def compress(cfg: DictConfig) -> Comparison:
    """Print and save a table and a picture of accuracy, latency and size of each way to run the classifier on this
    machine's CPU, and the fastest ONNX file that loses at most cfg.max_drop points of accuracy. Raises ConfigError."""
    check_libraries()
    if not cfg.batch_sizes:
        raise ConfigError("batch_sizes [] is empty; give at least one, such as batch_sizes=[1,8]")
    saved = SavedRun.open(cfg.run, {"data": resolve_config(cfg.data)})
    task = open_classifier(saved, cfg.run, "compress", one_class=True)
    place = output_folder(cfg.output, "compress", saved.folder / "compress", overwrite=cfg.overwrite)
    datamodule = open_images(saved)
    threads = cfg.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    images = read_images(datamodule, "test", cfg.num_images)
    own = Classifier(
        task.model,
        partial(wrap_model, task=task),
        images[:2].clone(),
        read_images(datamodule, "train", cfg.calibration_images).split(1),
    )
    with place.make_folder() as folder, tempfile.TemporaryDirectory(dir=folder) as work:
        candidates, skipped = build_all(cfg, own, Path(work), threads)
        scores = score_all(candidates, datamodule, max(cfg.batch_sizes))
        comparison = Comparison(candidates, scores, measure_all(cfg, candidates, images), skipped)
        chosen = comparison.choose(cfg.max_drop)
        write_chosen(saved, chosen, comparison.count_lost(chosen.name), cfg.max_drop, own, folder)
        write_comparison(cfg, comparison, chosen, folder, threads)
        tell(comparison, chosen, cfg.max_drop, folder, len(datamodule.splits["test"]))
    return comparison


# -- what is compressed


def read_images(datamodule: ImageDataModule, split: str, count: int) -> Tensor:
    """Read at most `count` images of a split, evenly spaced, normalised. -> (n, C, H, W)"""
    total = len(datamodule.splits[split])
    places = np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int)).tolist()
    batches = evaluation_batches(datamodule, split, batch_size=len(places), device=CPU, places=places)
    return torch.cat([batch.view.inputs for batch in batches])


def wrap_model(model: Any, task: Supervised) -> Scorer:
    return Scorer(model, task.probabilities, task.known)


# -- what is measured


def build_all(cfg: DictConfig, own: Classifier, folder: Path, threads: int) -> tuple[list[Candidate], list[Skipped]]:
    built = build_candidates(own, folder, cfg.merge, threads, cfg.batch_sizes)
    found = list(track(built, description="building", total=None, transient=True))
    candidates = [one for one in found if isinstance(one, Candidate)]
    return candidates, [one for one in found if isinstance(one, Skipped)]


def score_all(candidates: list[Candidate], datamodule: ImageDataModule, size: int) -> dict[str, Score]:
    """Score each candidate on every test image."""

    def read() -> Iterator[tuple[Tensor, Tensor]]:
        batches = evaluation_batches(datamodule, "test", batch_size=size, device=CPU)
        total = -(-len(datamodule.splits["test"]) // size)
        for batch in track(batches, description="scoring", total=total, transient=True):
            yield batch.view.inputs, batch.target

    return score_candidates(candidates, read(), size)


def measure_all(cfg: DictConfig, candidates: list[Candidate], images: Tensor) -> dict[int, dict[str, Latency]]:
    """Time each candidate on the same images, at each batch size."""
    runs = {one.name: one.run for one in candidates}
    latencies = {}
    for size in cfg.batch_sizes:
        turns = measure_latency(runs, images, size)
        count = count_turns(len(images), size)
        *_, latencies[size] = track(turns, description=f"timing batches of {size}", total=count, transient=True)
    return latencies


# -- what is kept


def write_chosen(
    saved: SavedRun, chosen: Candidate, lost: float, max_drop: float, own: Classifier, folder: Path
) -> None:
    """Write the bundle of the chosen way, which has `lost` points of accuracy, into a folder. Raises ConfigError where
    its files are out of bounds."""
    form = chosen.form
    assert form is not None
    merged = form.model is not own.model
    bounds = INT8 if form.quantize else FLOAT32
    if form.quantize or merged:  # as many more as points that may be lost
        bounds = replace(bounds, flips=limit_flips(max_drop))
    written = replace(FORMS["onnx"], write=partial(write_quantized, form.quantize, own.batches), bounds=bounds)
    with write_folder_atomically(folder / "bundle") as temporary:
        notes = [f"compressed: {chosen.name}, which lost {lost:.2f} points of test accuracy beside float32"]
        export_graphs(saved, temporary, [written], whole=True, model=form.model, notes=notes)


def write_quantized(
    quantize: Quantize | None, batches: Sequence[Tensor], graph: Graph, path: Path, metadata: dict[str, str]
) -> None:
    """Write a graph as ONNX, quantised by what it takes of batches of normalised images (B, C, H, W)."""
    if quantize is None:
        write_onnx(graph, path, metadata)
        return
    plain = path.with_suffix(".float32.onnx")
    write_onnx(graph, plain, metadata)
    own = graph.module
    given = [own.denormalize(batch) for batch in batches] if isinstance(own, ImageClassifier) else batches
    quantize(plain, path, given)
    plain.unlink()


def write_comparison(cfg: DictConfig, comparison: Comparison, chosen: Candidate, folder: Path, threads: int) -> None:
    """Write the table, the picture, and what was measured how."""
    rows = comparison.list_rows()
    names = list_columns(rows)
    write_csv(folder / "compression.csv", names, [[row.get(name, "") for name in names] for row in rows])
    write_figure(comparison.draw(cfg.max_drop, chosen), folder / "compression.png")
    facts = {"run": str(cfg.run), "machine": describe_cpu(), "threads": threads, "torch": str(torch.__version__)}
    facts |= {"test_images": next(iter(comparison.scores.values())).images, "max_drop": cfg.max_drop}
    console.write_json(folder / "compression.json", {**facts, "chosen": chosen.name, "rows": rows})


def build_table(comparison: Comparison) -> Table:
    """Lay out what was measured for a terminal of 80 columns."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    timed = [f"ms, batch {size}" for size in comparison.latencies]
    for name in ("MB", "acc1", "lost", "same", *timed):
        table.add_column(name, justify="right", no_wrap=True)
    for one in comparison.candidates:
        score = comparison.scores[one.name]
        percent = (score.accuracy, comparison.count_lost(one.name), score.agreement)
        times = (latency[one.name] for latency in comparison.latencies.values())
        table.add_row(
            one.name,
            f"{one.size / MEGABYTE:.2f}",
            *(f"{value:.2f}" for value in percent),
            *(f"{format_time(time.p50)} ({format_time(time.p95)})" for time in times),
        )
    return table


def format_time(milliseconds: float) -> str:
    """Write a time with three digits."""
    return f"{milliseconds:,.{max(0, 2 - len(str(int(milliseconds))) + 1)}f}"


def tell(comparison: Comparison, chosen: Candidate, max_drop: float, folder: Path, total: int) -> None:
    """Print the table, and what was chosen."""
    screen = Console(soft_wrap=True, highlight=False, markup=False)
    screen.print(build_table(comparison))
    for one in comparison.skipped:
        screen.print(f"{one.name} is skipped: {one.reason}")
    images, lost = comparison.scores[chosen.name].images, comparison.count_lost(chosen.name)
    screen.print("milliseconds: median (95 % are faster); same: share of classes that equal eager float32")
    screen.print(f"{'scored':<9}{images:,} of {total:,} test images, on {describe_cpu()}")
    within = f"at most max_drop={max_drop:g}" if lost <= max_drop + 1e-9 else f"more than max_drop={max_drop:g}"
    screen.print(f"{'chosen':<9}{chosen.name}: {lost:.2f} points lost, {within}")
    screen.print(f"{'saved':<9}{folder}, its bundle in {folder / 'bundle'}")
