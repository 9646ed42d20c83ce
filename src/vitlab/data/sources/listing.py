"""Images named in a table: a CSV or Parquet file with a path and a label in each row, and perhaps a split."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.labels import numbered
from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.sources.tables import READERS, place_of, read_table
from vitlab.data.targets import OneClass, Targets, multi_hot
from vitlab.errors import ConfigError, DataError

OUTSIDE = (os.sep, os.path.join(os.pardir, ""))


class Listing:
    """One image for each row of `file` (.csv or .parquet); the columns are named by `path_column`, `label_column` and
    `split_column` (null: every row is for training). Relative paths lie below `root`
    (null: the folder of the table), and no path leads out of it, unless `allow_outside`. A file that stands in several
    rows has the same label in all of them, unless `allow_two_labels`.

    Labels are names or whole numbers; `class_names` null: those of the training rows, sorted, numbers by their value.
    Given names are what the labels say, or what whole numbers count from 0. With a `label_separator` an image may have
    several classes, which stand in its label with that between them, or none. A file that is missing is met when it is
    read. `in_chans` is None: files may differ, so data.images.mode says what they are converted to.
    """

    in_chans = None

    def __init__(
        self,
        *,
        file: str,
        root: str | None,
        path_column: str,
        label_column: str,
        label_separator: str | None,
        split_column: str | None,
        class_names: list[str] | None,
        allow_outside: bool,
        allow_two_labels: bool,
    ):
        self.file = Path(file)
        self.root = str(self.file.parent) if root is None else root
        self.columns = {
            key: column
            for key, column in {
                "path_column": path_column,
                "label_column": label_column,
                "split_column": split_column,
            }.items()
            if column is not None
        }
        if label_separator == "":
            raise ConfigError(
                "data.source.label_separator is empty; give what stands between two labels, as ;, or null"
            )
        self.separator = label_separator
        self.allow_outside = allow_outside
        self.allow_two_labels = allow_two_labels
        self.given_names = class_names
        self.class_names: list[str] = list(class_names or [])
        if self.file.suffix.lower() not in READERS:
            raise ConfigError(f"data.source.file {file} is neither .csv nor .parquet")

    def prepare(self) -> None:
        """Nothing to download."""

    def open(self) -> dict[str, Pool]:
        if not self.file.is_file():
            raise DataError(f"data.source.file: there is no file {self.file}; give a CSV or Parquet file")
        table = read_table(self.file, self.columns)
        paths, labels = table["path_column"], table["label_column"]
        needed = {"path_column": paths} | ({"label_column": labels} if self.separator is None else {})
        for key, column in needed.items():
            for row, value in enumerate(column):
                if not value:
                    place = place_of(self.file, row)
                    raise DataError(f"{place}: the {self.columns[key]} is empty; fill it, or remove the row")
        splits = self._splits(table.get("split_column"), len(paths))
        if not len(splits.get("train", [])):
            raise DataError(f"{self.file} lists no image to train on")
        names = [self._names(label) for label in labels]
        self._check_paths(paths, names)
        self.class_names, number = numbered((name for row in splits["train"] for name in names[row]), self.given_names)
        pools: dict[str, Pool] = {}
        for split, rows in splits.items():
            try:
                classes = [[number[name] for name in names[row]] for row in rows]
            except KeyError:
                row, unknown = next((row, name) for row in rows for name in names[row] if name not in number)
                known = "data.source.class_names" if self.given_names else "the training rows"
                raise DataError(f"{place_of(self.file, row)}: label '{unknown}' is not one of {known}") from None
            targets: Targets = multi_hot(classes, len(self.class_names))
            if self.separator is None:
                targets = OneClass(np.array(classes, np.int64)[:, 0])
            pools[split] = FilePool.listed([paths[row] for row in rows], targets, self.root)
        return pools

    def _names(self, label: str) -> tuple[str, ...]:
        """List the classes that a label names."""
        if self.separator is None:
            return (label,)
        return tuple(name for part in label.split(self.separator) if (name := part.strip()))

    def _check_paths(self, paths: Sequence[str], names: Sequence[tuple[str, ...]]) -> None:
        """Raise DataError for a path that leads out of the root, and for a file that has two labels."""
        roots = [os.path.join(root, "") for root in (os.path.abspath(self.root), os.path.realpath(self.root))]
        rows: dict[str, int] = {}
        for row, path in enumerate(paths):
            place = os.path.normpath(path)
            if place.startswith(os.sep):
                place = next((place.removeprefix(root) for root in roots if place.startswith(root)), place)
            if not self.allow_outside and (place.startswith(OUTSIDE) or place == os.pardir):
                raise DataError(
                    f"{place_of(self.file, row)}: {path} lies outside of {os.path.abspath(self.root)}; set "
                    "data.source.root to a folder that holds all images, or data.source.allow_outside=true"
                )
            earlier = rows.setdefault(place, row)
            if earlier != row and not self.allow_two_labels and set(names[earlier]) != set(names[row]):
                one, other = (", ".join(names[k]) or "none" for k in (row, earlier))
                raise DataError(
                    f"{place_of(self.file, row)}: {path} has the label {one}, and {other} at "
                    f"{place_of(self.file, earlier)}; remove one, or set data.source.allow_two_labels=true"
                )

    def _splits(self, column: Sequence[str] | None, length: int) -> dict[str, np.ndarray]:
        """Find the rows of each split."""
        if column is None:
            return {"train": np.arange(length)}
        numbers = {split: number for number, split in enumerate(SPLITS)}
        values = np.array([numbers.get(value, -1) for value in column])
        for row in np.flatnonzero(values < 0)[:1]:
            raise DataError(
                f"{place_of(self.file, row)}: the {self.columns['split_column']} is '{column[row]}', and "
                f"may be {', '.join(SPLITS)}"
            )
        return {split: rows for split, number in numbers.items() if len(rows := np.flatnonzero(values == number))}
