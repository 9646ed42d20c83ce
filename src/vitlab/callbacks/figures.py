"""Save the figures that callbacks draw.

C channels, H W image height and width, K classes
"""

import warnings
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytorch_lightning as pl
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.atomic_files import write_atomically
from vitlab.tasks.calibration import BINS
from vitlab.views import channels_last

LETTERS = 20  # letters that fit above a picture in a grid
MOST_LINES = 4  # of a name above a picture
CELL = 1.75  # inches of a picture's column
RIGHT, WRONG = "tab:green", "tab:red"
LABELLED_CLASSES = 30  # more names than this cannot be read beside a matrix


def save_figure(trainer: pl.Trainer, figure: Figure, name: str) -> Path:
    """Write pictures/<name>.png in the run's folder, and send it to every logger that takes images."""
    path = write_figure(figure, Path(trainer.default_root_dir) / "pictures" / f"{name}.png")
    for logger in trainer.loggers:
        if hasattr(logger, "log_image"):
            logger.log_image(key=name, images=[str(path)], step=trainer.global_step)
    return path


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as a PNG, and make its folder where there is none. A letter that no font has is drawn as a box."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        laid_out = figure.get_layout_engine() is not None  # otherwise it is drawn once more, to find its edges
        figure.savefig(temporary, format="png", dpi=110, bbox_inches=None if laid_out else "tight")
    return path


def image_grid(
    images: list[Tensor], titles: list[str], *, columns: int, heading: str, marks: list[bool] | None = None
) -> Figure:
    """Draw images (C, H, W) in [0, 1] in rows, each in its own shape with a title above it, whose lines are folded to
    its width. `marks` say which are right: their titles are green, and others red."""
    folded = ["\n".join(part for line in title.split("\n") for part in wrap_line(line)) for title in titles]
    colours = ["black"] * len(images) if marks is None else [RIGHT if mark else WRONG for mark in marks]
    rows = -(-len(images) // columns)
    words = 0.3 + 0.15 * max(title.count("\n") for title in folded)  # inches, as all below
    cell, top = CELL - 0.1 + words, 0.12 + 0.2 * (heading.count("\n") + 1)
    figure = Figure(figsize=(CELL * columns, top + rows * cell))
    axes = figure.add_axes((0, 0, 1, 1))  # one for all: an Axes takes longer than its picture
    axes.set_axis_off()
    axes.text(CELL * columns / 2, 0.04, heading, ha="center", va="top", fontsize=12)
    for place, (image, title, colour) in enumerate(zip(images, folded, colours, strict=True)):
        row, column = divmod(place, columns)
        height, width = ((CELL - 0.15) * side / max(image.shape[1:]) for side in image.shape[1:])
        middle, bottom = CELL * (column + 0.5), top + (row + 1) * cell
        sides = (middle - width / 2, middle + width / 2, bottom, bottom - height)
        axes.imshow(channels_last(image).cpu().numpy(), extent=sides)
        above = bottom - height - 0.04
        axes.text(middle, above, title, ha="center", va="bottom", fontsize=8.5, color=colour)
    axes.set(xlim=(0, CELL * columns), ylim=(top + rows * cell, 0), aspect="auto")
    return figure


def wrap_line(line: str) -> list[str]:
    """Wrap a line of a title into lines that fit above a picture; of a very long one, the end is left out."""
    lines = wrap(line.replace("$", "\\$"), LETTERS) or [""]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][:-1]}…"]


def confusion_figure(matrix: np.ndarray, class_names: list[str], heading: str) -> Figure:
    """Draw counts (K, K), one row for each true class: the share of the row as colour, and the count where it is
    legible."""
    K = len(class_names)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    figure = Figure(figsize=(min(2 + 0.45 * K, 12),) * 2)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title=heading)
    if K <= LABELLED_CLASSES:
        axes.set_xticks(range(K), class_names, rotation=45, ha="right", fontsize=8)
        axes.set_yticks(range(K), class_names, fontsize=8)
        for row, column in np.argwhere(matrix > 0):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(int(matrix[row, column])), ha="center", va="center", color=colour, fontsize=7)
    return figure


def reliability_figure(probability: np.ndarray, right: np.ndarray, heading: str) -> Figure:
    """Draw how often predictions (n,) of like probability are right, above how many there are (Guo et al., 2017,
    arXiv:1706.04599, figure 1)."""
    edges = np.linspace(0, 1, BINS + 1)
    counts, sums, hits = (
        np.histogram(probability, edges, weights=weights)[0] for weights in (None, probability, right.astype(float))
    )
    some = counts > 0
    figure = Figure(figsize=(5, 6), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[3, 1], sharex=True)
    above.plot([0, 1], [0, 1], color="tab:gray", linestyle="--", linewidth=1, label="calibrated")
    share, mean = hits[some] / counts[some], sums[some] / counts[some]
    above.bar(edges[:-1][some], share, width=1 / BINS, align="edge", color="tab:blue", alpha=0.4, edgecolor="white")
    above.plot(mean, share, "o", color="tab:blue", markersize=4, label="share that is right, at the mean probability")
    above.set(ylim=(0, 1.02), xlim=(0, 1), ylabel="share that is right", title=heading)
    above.legend(frameon=False, fontsize=9, loc="upper left")
    below.bar(edges[:-1], counts, width=1 / BINS, align="edge", color="tab:gray", edgecolor="white")
    below.set(xlabel="probability of the predicted class", ylabel="samples")
    return figure


def bar_figure(values: np.ndarray, class_names: list[str], heading: str) -> Figure:
    """Draw a value in [0, 1] for each class (K,), the best on top; a class whose value is NaN gets no bar."""
    order = np.argsort(np.nan_to_num(values, nan=-1.0), kind="stable")
    K = len(class_names)
    figure = Figure(figsize=(7, min(1.2 + 0.22 * K, 14)))
    axes = figure.add_subplot()
    axes.barh(range(K), np.nan_to_num(values[order]), color="tab:blue")
    axes.set(xlim=(0, 1), ylim=(-0.6, K - 0.4), title=heading)
    if K <= 2 * LABELLED_CLASSES:
        labels = [f"{class_names[k]} (none)" if np.isnan(values[k]) else class_names[k] for k in order]
        axes.set_yticks(range(K), labels, fontsize=8)
    return figure
