"""Figures that the callbacks draw, as files.

C channels, H W image height and width, K classes
"""

from pathlib import Path

import numpy as np
import pytorch_lightning as pl
from matplotlib.figure import Figure
from torch import Tensor

from vitlab.views import shown
from vitlab.whole_files import writing_whole

LABELLED_CLASSES = 30  # more names than this cannot be read beside a matrix


def save_figure(trainer: pl.Trainer, figure: Figure, name: str) -> Path:
    """Write pictures/<name>.png in the run's folder, and send it to every logger that takes images."""
    path = write_figure(figure, Path(trainer.default_root_dir) / "pictures" / f"{name}.png")
    for logger in trainer.loggers:
        if hasattr(logger, "log_image"):
            logger.log_image(key=name, images=[str(path)])
    return path


def write_figure(figure: Figure, path: Path) -> Path:
    """As a PNG, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110, bbox_inches="tight")
    return path


def image_grid(images: list[Tensor], titles: list[str], *, columns: int, heading: str) -> Figure:
    """Images (C, H, W) in [0, 1] with a title each."""
    rows = -(-len(images) // columns)
    lines = max(title.count("\n") for title in titles)
    figure = Figure(figsize=(1.4 * columns, (1.75 + 0.2 * lines) * rows + 0.3))
    figure.suptitle(heading, fontsize=11)
    for place, (image, title) in enumerate(zip(images, titles, strict=True), start=1):
        axes = figure.add_subplot(rows, columns, place)
        axes.imshow(shown(image).cpu().numpy())
        axes.set_title(title, fontsize=7)
        axes.set_axis_off()
    figure.tight_layout()
    return figure


def confusion_figure(matrix: np.ndarray, class_names: list[str], heading: str) -> Figure:
    """Counts (K, K), rows the true class: shares of the row as colour, and the counts where they can be read."""
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


def bar_figure(values: np.ndarray, class_names: list[str], heading: str) -> Figure:
    """A value in [0, 1] for each class (K,), the best on top; NaN where there is none, which gets no bar."""
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
