"""Measure how good a model is at each class: precision, recall and F1.

n samples, K classes
"""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from vitlab.atomic_files import write_csv
from vitlab.monitors import format_metric

MOST_PRINTED = 20  # classes; of more, no table is printed
FIGURES = ("precision", "recall", "f1")


def per_class(true: np.ndarray, said: np.ndarray) -> dict[str, np.ndarray]:
    """Measure each class: how many images have it; precision, the share of images said to have it that do; recall, the
    share of images that have it that are said to; F1 = 2·right / (said + true). NaN where there is nothing to divide
    by.

    Whether a sample has a class, and is said to have it: (n, K), (n, K) bool -> (K,) each.
    """
    images, called, right = (part.sum(axis=0) for part in (true, said, true & said))
    with np.errstate(invalid="ignore"):
        return {
            "images": images,
            "precision": right / called,
            "recall": right / images,
            "f1": 2 * right / (called + images),
        }


def write_per_class_table(figures: dict[str, np.ndarray], names: list[str], path: Path) -> None:
    """Write a table of the classes, and print it if there are few."""
    rows = [[name, *(values[k] for values in figures.values())] for k, name in enumerate(names)]
    kept = [
        [name, int(images), *(None if np.isnan(v) else round(float(v), 6) for v in of)] for name, images, *of in rows
    ]
    write_csv(path, ["class", *figures], kept)
    if len(names) > MOST_PRINTED:
        return
    table = Table("class", *figures, title=path.stem.replace("_", " "), title_justify="left")
    for name, images, *of in kept:
        words = ["" if v is None else format_metric(figure, v) for figure, v in zip(FIGURES, of, strict=True)]
        table.add_row(name, f"{images:,}", *words)
    for column in table.columns[1:]:
        column.no_wrap, column.justify = True, "right"
    Console(markup=False).print(table)
