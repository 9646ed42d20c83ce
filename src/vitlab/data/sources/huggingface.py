"""Data sets in the format of Hugging Face's `datasets`: from the hub, its cache, or a folder on the disk."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.data.pools import file_content
from vitlab.data.pools.labels import number_labels
from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.pools.split_names import check_splits
from vitlab.data.targets import OneClass, Targets, find_stray, multi_hot
from vitlab.errors import ConfigError, DataError, format_error

SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves


@dataclass(kw_only=True)
class HuggingFace(Source):
    """A data set of the hub, or a folder: of Parquet files, of images, or one that `save_to_disk` wrote.

    `name` is the hub's, or a path; `config` and `revision` are the hub's, null for its defaults. `splits` says what
    each split is called there (null: it has none). Images are read as they are stored and decoded with all others.
    Class names are those of a ClassLabel column, else the training labels, sorted, numbers by their value. A column of
    lists gives an image several classes, or none.
    `in_chans` is None: images may differ, so data.images.mode says what they are converted to.
    """

    name: str
    config: str | None
    revision: str | None
    image_column: str
    label_column: str
    splits: dict[str, str | None]

    def __post_init__(self) -> None:
        self.present = check_splits(self.splits)

    def prepare(self) -> None:
        """Download what the cache does not have."""
        self._load()

    def open(self) -> dict[str, Pool]:
        loaded = self._load()
        from pyarrow import compute

        tables = {split: self._table(loaded, split) for split in self.present}
        labels = {split: table.with_format("arrow")[:][self.label_column] for split, table in tables.items()}
        self._refuse_nulls(labels)
        feature = tables["train"].features[self.label_column]
        lengths = {}
        if hasattr(feature, "feature"):  # lists: an image may have several classes
            feature = feature.feature
            lengths = {split: [len(row) for row in column.to_pylist()] for split, column in labels.items()}
            labels = {split: compute.list_flatten(column) for split, column in labels.items()}
            self._refuse_nulls(labels)
        if hasattr(feature, "names"):  # ClassLabel: the labels are numbers already
            self.class_names = list(feature.names)
            numbers = {split: column.to_numpy().astype(np.int64) for split, column in labels.items()}
        else:
            texts = {split: [str(label) for label in column.to_pylist()] for split, column in labels.items()}
            self.class_names, number = number_labels(texts["train"], None)
            numbers = {
                split: np.array([number.get(text, -1) for text in column], dtype=np.int64)
                for split, column in texts.items()
            }
        for split, column in numbers.items():
            if (row := find_stray(column, len(self.class_names))) is not None:
                raise DataError(
                    f"{self.name}: {self.splits[split]} has labels that are not a class, such as {labels[split][row]}; "
                    "leave "
                    f"that split out with data.source.splits.{split}=null"
                )
        return {
            split: TablePool(
                table,
                self.image_column,
                self._targets(numbers[split], lengths.get(split)),
                f"{self.name} {self.splits[split]}",
            )
            for split, table in tables.items()
        }

    def _targets(self, numbers: np.ndarray, lengths: list[int] | None) -> Targets:
        """Return targets of classes (n,), or of the classes of all images in a row and how many each image has."""
        if lengths is None:
            return OneClass(numbers)
        rows = np.split(numbers, np.cumsum(lengths)[:-1])
        return multi_hot(rows, len(self.class_names))  # type: ignore[arg-type]  # arrays are sequences

    def _refuse_nulls(self, labels: dict[str, Any]) -> None:
        for split, column in labels.items():
            if column.null_count:
                raise DataError(f"{self.name}: {column.null_count} images of {self.splits[split]} have no label")

    def _load(self) -> Any:
        """Load the splits of the data set, by name."""
        try:
            import datasets
        except ImportError as error:
            raise ConfigError("data=huggingface needs the package datasets; pip install datasets") from error
        try:
            if any((Path(self.name) / file).is_file() for file in SAVED):
                loaded = datasets.load_from_disk(self.name)
            else:
                loaded = datasets.load_dataset(self.name, self.config, revision=self.revision)
        except Exception as error:  # no network, no such name, a damaged file: datasets raises many kinds
            reason = format_error(error)
            raise DataError(
                f"data.source.name: {self.name} cannot be loaded ({reason}); give a data set of huggingface.co, which "
                "needs the network or its cache, or a folder"
            ) from error
        return loaded if isinstance(loaded, dict) else {"train": loaded}

    def _table(self, loaded: Any, split: str) -> Any:
        """Return the two columns of a split, the images as they are stored."""
        import datasets

        called = self.present[split]
        if called not in loaded:
            raise DataError(
                f"data.source.splits.{split}: {self.name} has no split {called}; it has {', '.join(loaded)}"
            )
        table = loaded[called]
        columns = {"image_column": self.image_column, "label_column": self.label_column}
        for key, column in columns.items():
            if column not in table.features:
                raise DataError(
                    f"data.source.{key}: {self.name} has no column {column}; it has {', '.join(table.features)}"
                )
        try:
            table = table.select_columns(list(columns.values()))
            return table.cast_column(self.image_column, datasets.Image(decode=False))
        except Exception as error:  # pyarrow and datasets raise many kinds
            reason = format_error(error)
            raise DataError(
                f"data.source.image_column: the column {self.image_column} of {self.name} holds no images ({reason})"
            ) from error


class TablePool(Pool):
    """Images in a `datasets.Dataset`, which is mapped into memory, in the workers too. `label` names the set.

    The fingerprint is made of the classes, of the files' names and of their sizes, where the table holds the files.
    """

    def __init__(self, table: Any, column: str, targets: Targets, label: str):
        self.images = table.select_columns([column])
        self.column = column
        self.label = label
        super().__init__(targets, self._digest(targets))

    def _digest(self, targets: Targets) -> str:
        from pyarrow import compute

        digest = hashlib.blake2b(targets.tobytes(), digest_size=8)
        stored = self.images.with_format("arrow")[:][self.column]
        sizes = compute.binary_length(compute.struct_field(stored, "bytes"))
        digest.update(compute.fill_null(sizes, 0).to_numpy().astype(np.int64).tobytes())
        names = compute.struct_field(stored, "path").to_pylist()
        digest.update("\n".join(os.path.basename(name or "") for name in names).encode(errors="surrogateescape"))
        return digest.hexdigest()

    def load(self, i: int) -> Stored:
        return content(self.images[int(i)][self.column])

    def load_many(self, indices: Sequence[int]) -> list[Stored | Exception]:
        stored: list[Stored | Exception] = []
        for image in self.images[[int(i) for i in indices]][self.column]:
            try:
                stored.append(content(image))
            except (OSError, ValueError) as error:
                stored.append(error)
        return stored

    def name(self, i: int) -> str:
        path = (self.images[int(i)][self.column] or {}).get("path")
        return f"{self.label} image {i}" + (f" ({path})" if path else "")


def content(image: dict[str, Any] | None) -> bytes:
    """Read the file that a table holds, or names."""
    if image is None:
        raise ValueError("this row holds no image")
    held: bytes | None = image["bytes"]
    return file_content.content(image["path"]) if held is None else held
