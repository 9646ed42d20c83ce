"""Shards, as `python src/pack.py` writes or indexes them: on a disk, in an object store or behind a web server."""

import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.atomic_files import compute_digest, write_whole
from vitlab.data.images.decoding import DamagedImage
from vitlab.data.pools.pool import Pool, Source, Stored
from vitlab.data.shards.file_ranges import ByteRange, Files, LocalFiles, open_files
from vitlab.data.shards.index import INDEX, check_columns, get_name, map_index, read_index
from vitlab.data.targets import make_classes
from vitlab.errors import DataError
from vitlab.invocation import format_command
from vitlab.machine import make_cache_folder


class Shards(Source):
    """The splits below `root`, a path or a URL that fsspec knows (s3://, gs://, hf://, https://, ...).

    Credentials are those of the storage's own package (for s3 that is s3fs), which must be installed. The index of a
    remote set is kept in $XDG_CACHE_HOME/vitlab, or ~/.cache/vitlab. `in_chans` is None: images may differ.
    """

    def __init__(self, *, root: str):
        self.root = root.rstrip("/") if "://" in root else root

    def prepare(self) -> None:
        """Fetch the index, so that the processes of one machine find it."""
        files = open_files(self.root)
        for entry in self._index(files)["splits"].values():
            self._local_index(files, entry)

    def open(self) -> dict[str, Pool]:
        files = open_files(self.root)
        index = self._index(files)
        self.class_names = index["class_names"]
        images = open_files(index["root"]) if "root" in index else files  # tars that others have made, left in place
        return {split: self._pool(files, images, split, entry) for split, entry in index["splits"].items()}

    def _index(self, files: Files) -> dict[str, Any]:
        place = f"{self.root}/{INDEX}"
        try:
            content = files.read_file(INDEX)
        except DataError as error:
            raise DataError(
                f"data.source.root: {error}; {format_command('pack')} output=DIR packs a data set, and "
                f"{format_command('pack')} {shlex.quote(f'index={self.root}')} makes the index of tars that are there"
            ) from error
        return read_index(content, place)

    def _pool(self, files: Files, images: Files, split: str, entry: dict[str, Any]) -> Pool:
        names = [name for name, _ in entry["shards"]]
        for (name, expected), size in zip(entry["shards"], images.sizes(names), strict=True):
            if size not in (expected, None):
                raise DataError(f"{self.root}/{name} has {size:,} bytes, and {expected:,} were written; copy it again")
        index = self._local_index(files, entry)
        check_columns(map_index(index)[0], [size for _, size in entry["shards"]], index)
        return ShardPool(images, index, names, entry)

    def _local_index(self, files: Files, entry: dict[str, Any]) -> Path:
        """Give a split's index on this machine, checked."""
        if isinstance(files, LocalFiles):
            path = Path(files.root, entry["index"])
        else:
            folder = make_cache_folder("shards")
            if folder is None:
                raise DataError("there is no folder for the index of a remote data set; set XDG_CACHE_HOME")
            path = folder / f"{entry['digest']}.safetensors"
            if not path.is_file():
                write_whole(path, files.read_file(entry["index"]))
        if not path.is_file():
            raise DataError(f"there is no file {path}, the index of a split; pack the data set again")
        if not path.stat().st_size or compute_digest(np.memmap(path, mode="r").data) != entry["digest"]:
            raise DataError(f"{path}, the index of a split, is damaged; restore it, or remove it if it is a copy")
        return path


class ShardPool(Pool):
    """One split's images, each read by its position in a shard and compared with its CRC-32.

    The index is memory-mapped: a process holds the pages that it reads, and a pickled pool is as long as its list of
    shards. An image whose bytes have changed is an OSError that names it and its shard; a shard that cannot be reached
    is a DataError.
    """

    def __init__(self, files: Files, index: Path, shards: list[str], entry: dict[str, Any]):
        self.files, self.index, self.shards, self.entry = files, index, shards, entry
        self.unreadable = {int(i): reason for i, reason in entry.get("unreadable", {}).items()}
        self._columns, _ = map_index(index)
        super().__init__(make_classes(self._columns["target"]), entry["fingerprint"])
        self.groups = self._columns["shard"]

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardPool, (self.files, self.index, self.shards, self.entry)

    def load(self, i: int) -> Stored:
        stored = self.load_many([i])[0]
        if isinstance(stored, Exception):
            raise stored
        return stored

    def load_many(self, indices: Sequence[int]) -> list[Stored | Exception]:
        stored: list[Stored | Exception] = [
            self._read(i, content) for i, content in zip(indices, self._ask(indices), strict=True)
        ]
        changed = [k for k, content in enumerate(stored) if isinstance(content, OSError)]
        if changed:  # on the way perhaps
            again = self._ask([indices[k] for k in changed])
            for k, content in zip(changed, again, strict=True):
                stored[k] = self._read(indices[k], content)
        return stored

    def _ask(self, indices: Sequence[int]) -> list[bytes]:
        columns = self._columns
        return self.files.ranges(
            [
                ByteRange(self.shards[columns["shard"][i]], int(columns["offset"][i]), int(columns["length"][i]))
                for i in indices
            ]
        )

    def _read(self, i: int, content: bytes) -> Stored | Exception:
        length = int(self._columns["length"][i])
        if not length:
            return DamagedImage(self.unreadable.get(i, "it could not be read when it was packed"))
        if len(content) != length:
            return OSError(f"{self.name(i)}: {len(content):,} bytes came instead of {length:,}")
        if zlib.crc32(content) != self._columns["crc32"][i]:
            return OSError(f"{self.name(i)}: its bytes are not those that were written (CRC-32)")
        return content

    def size(self, i: int) -> tuple[int, int] | None:
        height, width = int(self._columns["height"][i]), int(self._columns["width"][i])
        return (height, width) if height else None

    def name(self, i: int) -> str:
        return f"{get_name(self._columns, i)} in {self.files.root}/{self.shards[self._columns['shard'][i]]}"
