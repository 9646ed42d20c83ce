"""Images named in a table: a CSV or Parquet file with a path and a label in each row, and perhaps a split."""

import csv
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.data.source import Pool
from vitlab.data.sources.file_pool import FilePool
from vitlab.data.sources.labels import numbered
from vitlab.data.sources.split_names import SPLITS
from vitlab.data.targets import multi_hot
from vitlab.errors import ConfigError, DataError, in_one_line


class Listing:
    """One image for each row of `file` (.csv or .parquet); the columns are named by `path_column`, `label_column` and
    `split_column` (null: every row is for training). Relative paths lie below `root`
    (null: the folder of the table).

    Labels are names or whole numbers; `class_names` null: those of the training rows, sorted, numbers by their value.
    Given names are what the labels say, or what whole numbers count from 0. With a `label_separator` an image may have
    several classes, which stand in its label with that between them, or none. A file that is missing is met when it is
    read. `in_chans` is None: files may differ, so data.image_mode says what they are converted to.
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
        self.given_names = class_names
        self.class_names: list[str] = list(class_names or [])
        if self.file.suffix.lower() not in READERS:
            raise ConfigError(f"data.source.file {file} is neither .csv nor .parquet")

    def prepare(self) -> None:
        """Nothing to download."""

    def open(self) -> dict[str, Pool]:
        if not self.file.is_file():
            raise DataError(f"data.source.file: there is no file {self.file}; give a CSV or Parquet file")
        try:
            table = READERS[self.file.suffix.lower()](self.file, self.columns)
        except ConfigError:
            raise
        except (OSError, ValueError, csv.Error) as error:
            reason = in_one_line(error)
            raise DataError(f"{self.file} cannot be read as {self.file.suffix[1:]}: {reason}") from error
        paths, labels = table["path_column"], table["label_column"]
        needed = {"path_column": paths} | ({"label_column": labels} if self.separator is None else {})
        for key, column in needed.items():
            for row, value in enumerate(column):
                if not value:
                    raise DataError(f"{self._place(row)}: the {self.columns[key]} is empty; fill it, or remove the row")
        splits = self._splits(table.get("split_column"), len(paths))
        if not len(splits.get("train", [])):
            raise DataError(f"{self.file} lists no image to train on")
        names = [self._names(label) for label in labels]
        self.class_names, number = numbered((name for row in splits["train"] for name in names[row]), self.given_names)
        pools: dict[str, Pool] = {}
        for split, rows in splits.items():
            try:
                classes = [[number[name] for name in names[row]] for row in rows]
            except KeyError:
                row, unknown = next((row, name) for row in rows for name in names[row] if name not in number)
                known = "data.source.class_names" if self.given_names else "the training rows"
                raise DataError(f"{self._place(row)}: label '{unknown}' is not one of {known}") from None
            one = self.separator is None
            targets = np.array(classes, np.int64)[:, 0] if one else multi_hot(classes, len(self.class_names))
            pools[split] = FilePool.listed([paths[row] for row in rows], targets, self.root)
        return pools

    def _names(self, label: str) -> list[str]:
        """The classes that a label names."""
        if self.separator is None:
            return [label]
        return [name for part in label.split(self.separator) if (name := part.strip())]

    def _splits(self, column: Sequence[str] | None, length: int) -> dict[str, np.ndarray]:
        """The rows of each split."""
        if column is None:
            return {"train": np.arange(length)}
        values = np.array(column)
        for row in np.flatnonzero(~np.isin(values, SPLITS))[:1]:
            raise DataError(
                f"{self._place(row)}: the {self.columns['split_column']} is '{values[row]}', and may be "
                f"{', '.join(SPLITS)}"
            )
        return {split: rows for split in SPLITS if len(rows := np.flatnonzero(values == split))}

    def _place(self, row: int) -> str:
        """Where a row stands: the line of a CSV file, where rows may be blank or take several lines."""
        if self.file.suffix.lower() != ".csv":
            return f"{self.file}, row {row + 1}"
        with open(self.file, newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
            rows = csv.reader(lines)
            next(rows)  # the header
            filled = (rows.line_num for values in rows if values)
            return f"{self.file}, line {next(islice(filled, row, None))}"


def read_csv(file: Path, columns: dict[str, str]) -> dict[str, list[str]]:
    """The columns as they are written. Raises DataError for one that is not there and for a row of another length."""
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
        rows = csv.reader(lines)
        header = next(rows, [])
        check_columns(file, columns, header)
        places = [header.index(column) for column in columns.values()]
        table: list[list[str]] = [[] for _ in places]
        for row in filter(None, rows):
            if len(row) != len(header):
                raise DataError(
                    f"{file}, line {rows.line_num}: {len(row)} values for {len(header)} columns; quote the commas"
                )
            for values, place in zip(table, places, strict=True):
                values.append(row[place])
    return dict(zip(columns, table, strict=True))


def read_parquet(file: Path, columns: dict[str, str]) -> dict[str, list[str]]:
    """The columns as text; "" for null. Raises DataError for one that is not there or holds neither text nor whole
    numbers, and ConfigError without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"data.source.file {file}: Parquet needs pyarrow; pip install pyarrow") from error
    try:
        schema = parquet.read_schema(file)
        check_columns(file, columns, schema.names)
        table = parquet.read_table(file, columns=list(dict.fromkeys(columns.values())))
    except pyarrow.ArrowException as error:
        raise ValueError(error) from error
    read = {key: table.column(column).to_pylist() for key, column in columns.items()}
    return {key: list(texts(values, f"{file}: column {columns[key]}")) for key, values in read.items()}


def texts(values: Iterable[Any], place: str) -> Iterable[str]:
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DataError(f"{place} holds {value!r}, and takes text or whole numbers")
        yield "" if value is None else str(value)


def check_columns(file: Path, columns: dict[str, str], present: Sequence[str]) -> None:
    for key, column in columns.items():
        if column not in present:
            raise DataError(f"data.source.{key}: {file} has no column {column}; it has {', '.join(present) or 'none'}")


READERS = {".csv": read_csv, ".parquet": read_parquet}
