"""Index shards: in which tar each image lies, and where in it.

n images of a split, K classes
"""

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from vitlab.atomic_files import compute_digest
from vitlab.data.pools.columns import map_columns, write_columns
from vitlab.data.pools.file_content import MOST_BYTES
from vitlab.errors import DataError

FORMAT, VERSION = "vitlab shards", 1
INDEX = "index.json"
COLUMNS = {  # columns of the index and their types; each (n,), but for the letters of all names
    "shard": np.int64,  # the number of the tar
    "offset": np.int64,  # bytes from its begin to the image file
    "length": np.int64,  # bytes of the image file; 0: there is none, since the image could not be read
    "target": np.int64,  # or, where images may have several classes, (n, K) uint8
    "crc32": np.uint32,  # checksum of the image file
    "height": np.int32,  # before it was made smaller; 0: it was not
    "width": np.int32,
    "name_end": np.int64,  # where its name ends in `names`
    "names": np.uint8,  # UTF-8
}


def save_columns(path: Path, columns: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write the columns of an index in their types, whole or not at all."""
    types = COLUMNS | ({"target": np.uint8} if columns["target"].ndim == 2 else {})
    write_columns(path, {name: columns[name].astype(dtype, copy=False) for name, dtype in types.items()}, metadata)


def map_index(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The columns of an index as read-only views into its file, and its metadata. Raises DataError."""
    try:
        columns, metadata = map_columns(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not an index of shards, or it is damaged: {error}") from error
    if missing := COLUMNS.keys() - columns.keys():
        raise DataError(f"{path} is not an index of shards: it has no column {', '.join(sorted(missing))}")
    return columns, metadata


def check_columns(columns: dict[str, np.ndarray], sizes: list[int], path: Path) -> None:
    """Raise DataError unless every image lies in one of the shards, of so many bytes each, and has a name and a size
    that images have."""
    count = len(columns["length"])
    if any(len(column) != count for name, column in columns.items() if name != "names"):
        raise DataError(f"{path} is damaged: its columns differ in length; pack the data set again")
    shard, offset, length = (columns[name] for name in ("shard", "offset", "length"))
    height, width = columns["height"], columns["width"]
    good = (shard >= 0) & (shard < len(sizes)) & (offset >= 0) & (length >= 0) & (length <= MOST_BYTES)
    good &= offset <= np.array(sizes)[shard.clip(0, len(sizes) - 1)] - length
    good &= (np.diff(columns["name_end"], prepend=0) >= 0) & (columns["name_end"] <= columns["names"].size)
    good &= (height >= 0) & (width >= 0) & ((height == 0) == (width == 0))
    if not good.all():
        raise DataError(
            f"{path}: image {int(good.argmin())} lies outside of the shards, or has an impossible name or size; pack "
            "the data set again"
        )


@dataclass
class Rows:
    """The index of some images, as it grows. `unreadable`: why an image is missing, by its number in the split."""

    rows: list[tuple[int, ...]] = field(default_factory=list)  # shard offset length crc32 height width
    targets: list[np.ndarray | np.int64] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)

    def add(
        self,
        shard: int,
        offset: int,
        content: bytes,
        target: np.ndarray | np.int64,
        size: tuple[int, int] | None,
        name: str,
    ) -> None:
        self.rows.append((shard, offset, len(content), zlib.crc32(content), *(size or (0, 0))))
        self.targets.append(target)
        self.names.append(name.encode("utf-8", "surrogateescape"))

    def columns(self) -> dict[str, np.ndarray]:
        names = ("shard", "offset", "length", "crc32", "height", "width")
        table = np.array(self.rows, dtype=np.int64).reshape(-1, len(names))
        columns = {name: table[:, number] for number, name in enumerate(names)}
        columns["target"] = np.array(self.targets)
        columns["name_end"] = np.cumsum([len(name) for name in self.names], dtype=np.int64)
        columns["names"] = np.frombuffer(b"".join(self.names), dtype=np.uint8)
        return columns


def name_part(shard: Path) -> Path:
    """Name the file of one shard's part of the index, which exists while its split is being written."""
    return shard.with_suffix(".part")


def index_split(
    folder: Path, split: str, shards: list[Path], fingerprint: str, encoding: str, *, keep_unreadable: bool
) -> dict[str, Any]:
    """Join the parts of the index. The fingerprint is the pool's own where every picture is."""
    parts = [map_index(name_part(shard)) for shard in shards]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in COLUMNS}
    lengths = [part["names"].size for part, _ in parts]
    starts = np.repeat(np.cumsum([0, *lengths[:-1]]), [len(part["length"]) for part, _ in parts])
    columns["name_end"] = columns["name_end"] + starts
    unreadable = {int(i): reason for _, metadata in parts for i, reason in json.loads(metadata["unreadable"]).items()}
    if columns["height"].any():
        fingerprint = compute_digest(f"{fingerprint} as {encoding}".encode())
    entry: dict[str, Any] = {"fingerprint": fingerprint}
    if keep_unreadable:
        entry["unreadable"] = {str(i): reason for i, reason in unreadable.items()}
    elif unreadable:
        entry["skipped"] = {get_name(columns, i): reason for i, reason in unreadable.items()}
        entry["fingerprint"] = compute_digest(f"{fingerprint} without {sorted(unreadable)}".encode())
        columns = leave_out(columns, np.array(list(unreadable)))
    return entry | save_index(folder, split, columns, [(shard.name, shard.stat().st_size) for shard in shards])


def leave_out(columns: dict[str, np.ndarray], numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Drop the images of these numbers from the columns."""
    keep = np.ones(len(columns["length"]), dtype=bool)
    keep[numbers] = False
    letters = np.diff(columns["name_end"], prepend=0)
    kept = {name: column[keep] for name, column in columns.items() if name != "names"}
    kept["names"] = columns["names"][np.repeat(keep, letters)]
    kept["name_end"] = np.cumsum(letters[keep])
    return kept


def save_index(
    folder: Path, split: str, columns: dict[str, np.ndarray], shards: list[tuple[str, int]]
) -> dict[str, Any]:
    """Write a split's index; returns what index.json says of it."""
    path = folder / f"{split}.safetensors"
    save_columns(path, columns, {"format": f"{FORMAT} {VERSION}"})  # one entry: the order of several is random
    return {
        "num_samples": len(columns["length"]),
        "index": path.name,
        "digest": compute_digest(np.memmap(path, mode="r").data),
        "shards": [[name, size] for name, size in shards],
    }


def get_name(columns: dict[str, np.ndarray], i: int) -> str:
    begin = int(columns["name_end"][i - 1]) if i else 0
    return columns["names"][begin : int(columns["name_end"][i])].tobytes().decode("utf-8", "surrogateescape")


def read_index(content: bytes, place: str) -> dict[str, Any]:
    """Read an index.json. Raises DataError for a file that is none, or of a later version."""
    try:
        index = json.loads(content)
        known = index["format"] == FORMAT and index["version"] <= VERSION
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{place} is not an index of shards") from error
    if not known:
        raise DataError(
            f"{place} is of format {index['format']} {index['version']}, but only {FORMAT} {VERSION} can be read; pack "
            "the data set again"
        )
    try:
        whole = is_whole(index)
    except (LookupError, TypeError, AttributeError, ValueError):
        whole = False
    if not whole:
        raise DataError(f"{place} is damaged: it does not say what the shards are; pack the data set again")
    return cast(dict[str, Any], index)


def is_whole(index: dict[str, Any]) -> bool:
    """Whether an index.json holds all keys that are read, and names no file outside of its folder."""
    entries = list(index["splits"].values())
    shards = [shard for entry in entries for shard in entry["shards"]]
    files = [entry["index"] for entry in entries] + [name for name, _ in shards]
    texts = [*index["class_names"], index.get("root", "")]
    texts += [entry[key] for entry in entries for key in ("fingerprint", "digest")]
    return (
        all(isinstance(text, str) for text in texts)
        and all(entry["shards"] for entry in entries)
        and all(size >= 0 for _, size in shards)
        and all(number.isdecimal() for entry in entries for number in entry.get("unreadable", {}))
        and not any(os.path.isabs(name) or os.pardir in name.split("/") for name in files)
    )
