"""How good a model is at each class: precision, recall and F1.

n samples, K classes
"""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from vitlab.atomic_files import write_csv
from vitlab.monitors import in_words

TOLD = 20  # classes, of so many at most a table is printed too
FIGURES = ("precision", "recall", "f1")


def per_class(true: np.ndarray, said: np.ndarray) -> dict[str, np.ndarray]:
    """The images of each class; precision, the share that has it of those that are said to; recall, the share that is
    said to of those that have it; F1 = 2·right / (said + true). NaN where there is none to divide by.

    Whether a sample has a class, and is said to: (n, K), (n, K) bool -> (K,) each."""
    images, called, right = (part.sum(axis=0) for part in (true, said, true & said))
    with np.errstate(invalid="ignore"):
        return {
            "images": images,
            "precision": right / called,
            "recall": right / images,
            "f1": 2 * right / (called + images),
        }


def tell(figures: dict[str, np.ndarray], names: list[str], path: Path) -> None:
    """Write them as a table, and print it where there are few classes."""
    rows = [[name, *(values[k] for values in figures.values())] for k, name in enumerate(names)]
    kept = [
        [name, int(images), *(None if np.isnan(v) else round(float(v), 6) for v in of)] for name, images, *of in rows
    ]
    write_csv(path, ["class", *figures], kept)
    if len(names) > TOLD:
        return
    table = Table("class", *figures, title=path.stem.replace("_", " "), title_justify="left")
    for name, images, *of in kept:
        words = ["" if v is None else in_words(figure, v) for figure, v in zip(FIGURES, of, strict=True)]
        table.add_row(name, f"{images:,}", *words)
    for column in table.columns[1:]:
        column.no_wrap, column.justify = True, "right"
    Console(markup=False).print(table)


def rounded(value: float) -> float | None:
    """For a file; None of what is not known."""
    return None if np.isnan(value) else round(float(value), 6)
