"""Shards: a split's images in a few large tar files, with an index of where in them each image lies.

The tars are WebDataset's (https://webdataset.github.io): members 000000012.jpg and 000000012.cls, one after the other,
for the 12th image and its class. Programs that know WebDataset read them from front to end; here the index makes them a
map-style data set, read by position in any order, so that an order can be counted, and a run resumed on it, exactly.

    index.json               class names, splits, shards with their sizes; plain types
    train.safetensors        the index of the split train: columns (n,), which are memory-mapped
    train-000000.tar ...     the shards
"""

import contextlib
import errno
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from vitlab.data.decoding import DamagedImage
from vitlab.data.parallel import cut, in_order
from vitlab.data.source import Pool, Stored
from vitlab.errors import ConfigError, DataError, StorageError

FORMAT, VERSION = "vitlab shards", 1
INDEX, PLAN, LOCK = "index.json", "packing.json", ".lock"
BLOCK = 512  # bytes: a tar's unit
MEGABYTE = 10**6
AT_ONCE = 32  # images that a worker hands over together
COLUMNS = {  # of the index, by their types in safetensors; each (n,), but for the letters of all names
    "shard": np.int64,  # the number of the tar
    "offset": np.int64,  # bytes from its begin to the image file
    "length": np.int64,  # bytes of the image file; 0: there is none, since the image could not be read
    "target": np.int64,
    "crc32": np.uint32,  # of the image file
    "height": np.int32,  # before it was made smaller; 0: it was not
    "width": np.int32,
    "name_end": np.int64,  # where its name ends in `names`
    "names": np.uint8,  # UTF-8
}


class Encoded(NamedTuple):
    """An image file's content and extension, and the (height, width) it had before it was made smaller, if it was."""

    content: bytes
    extension: str
    size: tuple[int, int] | None


# -- columns on disk


def save_columns(path: Path, columns: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write a safetensors file, whole or not at all."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(columns[name], dtype) for name, dtype in COLUMNS.items()}, metadata)
    write_whole(path, content)


def map_columns(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The columns of a safetensors file as read-only views into it, and its metadata. Raises DataError."""
    types = {"I64": np.int64, "I32": np.int32, "U32": np.uint32, "U8": np.uint8}
    try:
        content = np.memmap(path, mode="r").view(np.ndarray)
        begin = 8 + int(content[:8].view(np.uint64)[0])
        header = json.loads(content[8:begin].tobytes())
        metadata = header.pop("__metadata__", {})
        columns = {
            name: content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]].view(
                types[entry["dtype"]]
            )
            for name, entry in header.items()
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise DataError(f"{path} is no index of shards, or damaged: {error}") from error
    if missing := COLUMNS.keys() - columns.keys():
        raise DataError(f"{path} is no index of shards: it has no column {', '.join(sorted(missing))}")
    return columns, metadata


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it once it is on the disk."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def digest_of(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


# -- one shard


@dataclass
class Rows:
    """The index of some images, as it grows. `unreadable`: why an image is missing, by its number in the split."""

    rows: list[tuple[int, ...]] = field(default_factory=list)  # shard offset length target crc32 height width
    names: list[bytes] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)

    def add(
        self, shard: int, offset: int, content: bytes, target: int, size: tuple[int, int] | None, name: str
    ) -> None:
        self.rows.append((shard, offset, len(content), target, zlib.crc32(content), *(size or (0, 0))))
        self.names.append(name.encode("utf-8", "surrogateescape"))

    def columns(self) -> dict[str, np.ndarray]:
        table = np.array(self.rows, dtype=np.int64).reshape(-1, 7)
        columns = {name: table[:, number] for number, name in enumerate(list(COLUMNS)[:7])}
        columns["name_end"] = np.cumsum([len(name) for name in self.names], dtype=np.int64)
        columns["names"] = np.frombuffer(b"".join(self.names), dtype=np.uint8)
        return columns


class Shard:
    """A tar in the making. It has its name only once it is whole and its part of the index is written."""

    def __init__(self, folder: Path, split: str, number: int):
        self.number = number
        self.path = folder / f"{split}-{number:06d}.tar"
        self.temporary = self.path.with_suffix(".tar.tmp")
        self.file = open(self.temporary, "wb")  # noqa: SIM115 - closed in close or give_up
        self.rows = Rows()

    def takes(self, encoded: Encoded, shard_bytes: int) -> bool:
        """Whether it stays below `shard_bytes` with this image. It takes one in any case."""
        return self.file.tell() == 0 or self.file.tell() + len(encoded.content) + 5 * BLOCK <= shard_bytes

    def add(self, i: int, encoded: Encoded | DamagedImage, target: int, name: str) -> None:
        if isinstance(encoded, DamagedImage):
            self.rows.unreadable[i] = str(encoded)
            self.rows.add(self.number, 0, b"", target, None, name)
            return
        offset = self._member(f"{i:09d}.{encoded.extension}", encoded.content)
        self._member(f"{i:09d}.cls", str(target).encode())
        self.rows.add(self.number, offset, encoded.content, target, encoded.size, name)

    def _member(self, name: str, content: bytes) -> int:
        """Append a file without owner or age: the same images give the same bytes. Returns where its content begins."""
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o444
        self.file.write(info.tobuf(tarfile.USTAR_FORMAT))
        offset = self.file.tell()
        self.file.write(content)
        self.file.write(bytes(-len(content) % BLOCK))
        return offset

    def close(self) -> None:
        self.file.write(bytes(2 * BLOCK))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        unreadable = json.dumps(self.rows.unreadable)
        save_columns(part_of(self.path), self.rows.columns(), {"unreadable": unreadable})
        os.replace(self.temporary, self.path)

    def give_up(self) -> None:
        if not self.file.closed:
            with contextlib.suppress(OSError):  # closing writes what is held back, for which a full disk has no room
                self.file.close()
            self.temporary.unlink(missing_ok=True)


def part_of(shard: Path) -> Path:
    """The file with a shard's part of the index, while its split is being written."""
    return shard.with_suffix(".part")


# -- one split


@dataclass
class Encoder:
    """Images of a pool as they are to be kept, or why they cannot be read."""

    pool: Pool
    encode: Callable[[Stored], Encoded]

    def __call__(self, indices: range) -> list[Encoded | DamagedImage]:
        return [self.encoded(stored) for stored in self.pool.load_many(indices)]

    def encoded(self, stored: Stored | Exception) -> Encoded | DamagedImage:
        try:
            if isinstance(stored, Exception):
                raise stored
            return self.encode(stored)
        except (OSError, ValueError) as error:
            return DamagedImage(str(error) or type(error).__name__)


def write_split(
    pool: Pool,
    folder: Path,
    split: str,
    encode: Callable[[Stored], Encoded],
    *,
    shard_bytes: int,
    num_workers: int,
    on_bad_image: str,
) -> dict[str, Any]:
    """Write a pool's images, in order, as shards of at most `shard_bytes`, and their index; returns the split's entry
    in index.json. Shards that are there are kept and gone on from: the bytes are those of an undisturbed writing.

    `on_bad_image`: "error" raises DataError; "skip" leaves the image out; "record" keeps its place in the index, and
    why. Raises StorageError when the disk is full.
    """
    shards, begin = whole_shards(folder, split)
    encoder = Encoder(pool, encode)
    pieces = cut(len(pool), AT_ONCE, start=begin)
    shard: Shard | None = None
    results = in_order(encoder, pieces, done=begin, title=f"{split} → {folder}", unit="images", num_workers=num_workers)
    try:
        for i, encoded in enumerate((encoded for piece in results for encoded in piece), start=begin):
            if isinstance(encoded, DamagedImage):
                if on_bad_image == "error":
                    raise DataError(
                        f"cannot read {pool.name(i)}: {encoded}; mend or remove it, or set data.on_bad_image=skip"
                    )
            elif shard is not None and not shard.takes(encoded, shard_bytes):
                shard.close()
                shards.append(shard.path)
                shard = None
            if shard is None:
                shard = Shard(folder, split, len(shards))
            shard.add(i, encoded, int(pool.targets[i]), short(pool.name(i)))
        if shard is None and not shards:
            shard = Shard(folder, split, 0)  # of no image
        if shard is not None:
            shard.close()
            shards.append(shard.path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageError(
            f"the disk is full; the {len(shards)} shards of {split} that are whole stay in {folder}, and the same "
            "command goes on from them"
        ) from error
    finally:
        if shard is not None:
            shard.give_up()
    return index_split(folder, split, shards, pool.fingerprint, repr(encode), keep_unreadable=on_bad_image == "record")


def short(name: str) -> str:
    """A file's name with the folder it lies in: where that lies is nobody's business in another place."""
    return "/".join(name.split("/")[-2:])


def whole_shards(folder: Path, split: str) -> tuple[list[Path], int]:
    """The shards that an earlier writing left, and how many images they hold."""
    shards: list[Path] = []
    count = 0
    while (path := folder / f"{split}-{len(shards):06d}.tar").is_file() and part_of(path).is_file():
        count += len(map_columns(part_of(path))[0]["length"])
        shards.append(path)
    return shards, count


def index_split(
    folder: Path, split: str, shards: list[Path], fingerprint: str, encoding: str, *, keep_unreadable: bool
) -> dict[str, Any]:
    """Join the parts of the index. The fingerprint is the pool's own where every picture is."""
    parts = [map_columns(part_of(shard)) for shard in shards]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in COLUMNS}
    lengths = [part["names"].size for part, _ in parts]
    starts = np.repeat(np.cumsum([0, *lengths[:-1]]), [len(part["length"]) for part, _ in parts])
    columns["name_end"] = columns["name_end"] + starts
    unreadable = {int(i): reason for _, metadata in parts for i, reason in json.loads(metadata["unreadable"]).items()}
    if columns["height"].any():
        fingerprint = digest_of(f"{fingerprint} as {encoding}".encode())
    entry: dict[str, Any] = {"fingerprint": fingerprint}
    if keep_unreadable:
        entry["unreadable"] = {str(i): reason for i, reason in unreadable.items()}
    elif unreadable:
        entry["skipped"] = {name_of(columns, i): reason for i, reason in unreadable.items()}
        entry["fingerprint"] = digest_of(f"{fingerprint} without {sorted(unreadable)}".encode())
        columns = leave_out(columns, np.array(list(unreadable)))
    return entry | save_index(folder, split, columns, [(shard.name, shard.stat().st_size) for shard in shards])


def leave_out(columns: dict[str, np.ndarray], numbers: np.ndarray) -> dict[str, np.ndarray]:
    """The columns without the images of these numbers."""
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
        "digest": digest_of(np.memmap(path, mode="r").data),
        "shards": [[name, size] for name, size in shards],
    }


def name_of(columns: dict[str, np.ndarray], i: int) -> str:
    begin = int(columns["name_end"][i - 1]) if i else 0
    return columns["names"][begin : int(columns["name_end"][i])].tobytes().decode("utf-8", "surrogateescape")


# -- all splits


def write_shards(
    pools: dict[str, Pool],
    class_names: list[str],
    folder: Path,
    encode: Callable[[Stored], Encoded],
    *,
    shard_bytes: int,
    num_workers: int,
    on_bad_image: str,
) -> dict[str, Any]:
    """Write all splits of a source, and index.json last: a folder that has it is whole. Returns its content.

    A folder in which the same writing was broken off is gone on with; one that is whole is left as it is. Raises
    ConfigError for a folder with anything else in it.
    """
    plan = {
        "format": FORMAT,
        "version": VERSION,
        "source": {split: [pool.fingerprint, len(pool)] for split, pool in pools.items()},
        "encoding": repr(encode),
        "shard_bytes": shard_bytes,
        "on_bad_image": on_bad_image,
    }
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        with lock:
            check_plan(folder, plan)
            if (folder / INDEX).is_file():
                return json.loads((folder / INDEX).read_text(encoding="utf-8"))
            splits = {
                split: write_split(
                    pool,
                    folder,
                    split,
                    encode,
                    shard_bytes=shard_bytes,
                    num_workers=num_workers,
                    on_bad_image=on_bad_image,
                )
                for split, pool in pools.items()
            }
            index = {"format": FORMAT, "version": VERSION, "class_names": class_names, "splits": splits}
            write_whole(folder / INDEX, as_json(index))
            for rest in (*folder.glob("*.part"), *folder.glob("*.tmp")):
                rest.unlink()
            return index
    except Timeout as error:
        raise ConfigError(f"another process is packing into {folder}; wait for it, or give a new folder") from error


def check_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Raise ConfigError when a folder holds anything but a beginning of this plan."""
    if not any(path.name != LOCK for path in folder.iterdir()):
        return write_whole(folder / PLAN, as_json(plan))
    if not (folder / PLAN).is_file():
        raise ConfigError(f"{folder} is not empty, and what is in it is no unfinished packing; give a new folder")
    found = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    if differing := [key for key in plan if plan[key] != found.get(key)]:
        raise ConfigError(f"{folder} was packed with another {' and '.join(differing)}; give a new folder")
    return None


def as_json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def read_index(content: bytes, place: str) -> dict[str, Any]:
    """The content of an index.json. Raises DataError for what is none, or of a later version."""
    try:
        index = json.loads(content)
        known = index["format"] == FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place} is no index of shards") from error
    if not known or index["version"] > VERSION:
        raise DataError(
            f"{place} is of format {index['format']} {index['version']}, and {FORMAT} {VERSION} is what is read"
        )
    return index
