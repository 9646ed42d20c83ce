"""Shards: a split's images in a few large tar files, with an index of where in them each image lies.

The tars are WebDataset's (https://webdataset.github.io): members 000000012.jpg and 000000012.cls, one after the other,
for the 12th image and its class; where an image may have several, 000000012.json lists them as its `label`. Programs
that know WebDataset read them from front to end; here the index makes them a map-style data set, read by position in
any order, so that an order can be counted, and a run resumed on it, exactly.

    index.json               class names, splits, shards with their sizes; plain types
    train.safetensors        the index of the split train: columns (n,), which are memory-mapped
    train-000000.tar ...     the shards
"""

import contextlib
import errno
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from filelock import FileLock, Timeout

from vitlab.atomic_files import format_json, remove_leftovers, write_whole
from vitlab.data.images.decoding import DamagedImage
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.pools.pool import Pool, Stored
from vitlab.data.shards.index import FORMAT, INDEX, VERSION, Rows, index_split, map_index, name_part, save_columns
from vitlab.data.targets import Classes, OneClass
from vitlab.errors import ConfigError, DataError, StorageError

PLAN, LOCK = "packing.json", ".lock"
BLOCK = 512  # bytes: a tar's unit
MEGABYTE = 10**6
AT_ONCE = 32  # images that a worker hands over together


class EncodedImage(NamedTuple):
    """An image file's content and extension, and the (height, width) it had before it was made smaller, if it was."""

    content: bytes
    extension: str
    size: tuple[int, int] | None


# -- one shard


class Shard:
    """A tar in the making. It has its name only once it is whole and its part of the index is written."""

    def __init__(self, folder: Path, split: str, number: int):
        self.number = number
        self.path = folder / f"{split}-{number:06d}.tar"
        self.temporary = self.path.with_suffix(".tar.tmp")
        self.file = open(self.temporary, "wb")  # noqa: SIM115 - closed in close or give_up
        self.rows = Rows()

    def takes(self, encoded: EncodedImage, shard_bytes: int) -> bool:
        """Whether it stays below `shard_bytes` with this image. An empty one takes any."""
        return self.file.tell() == 0 or self.file.tell() + len(encoded.content) + 5 * BLOCK <= shard_bytes

    def add(self, i: int, encoded: EncodedImage | DamagedImage, targets: Classes, name: str) -> None:
        if isinstance(encoded, DamagedImage):
            self.rows.unreadable[i] = str(encoded)
            self.rows.add(self.number, 0, b"", targets.values[i], None, name)
            return
        offset = self._member(f"{i:09d}.{encoded.extension}", encoded.content)
        classes = targets.get_classes(i)
        if isinstance(targets, OneClass):
            self._member(f"{i:09d}.cls", str(classes[0]).encode())
        else:
            self._member(f"{i:09d}.json", json.dumps({"label": classes}).encode())
        self.rows.add(self.number, offset, encoded.content, targets.values[i], encoded.size, name)

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
        save_columns(name_part(self.path), self.rows.columns(), {"unreadable": unreadable})
        os.replace(self.temporary, self.path)

    def give_up(self) -> None:
        if not self.file.closed:
            with contextlib.suppress(OSError):  # closing writes what is held back, for which a full disk has no room
                self.file.close()
            self.temporary.unlink(missing_ok=True)


# -- one split


@dataclass
class ImageEncoder:
    """Images of a pool as they are to be kept, or why they cannot be read."""

    pool: Pool
    encode: Callable[[Stored], EncodedImage]

    def __call__(self, indices: range) -> list[EncodedImage | DamagedImage]:
        return [self.try_encoding(stored) for stored in self.pool.load_many(indices)]

    def try_encoding(self, stored: Stored | Exception) -> EncodedImage | DamagedImage:
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
    encode: Callable[[Stored], EncodedImage],
    *,
    shard_bytes: int,
    num_workers: int,
    on_bad_image: str,
) -> dict[str, Any]:
    """Write a pool's images, in order, as shards of at most `shard_bytes`, and their index; returns the split's entry
    in index.json. Existing shards are kept, and writing resumes after them: the bytes equal an uninterrupted writing.

    `on_bad_image`: "error" raises DataError; "skip" leaves the image out; "record" keeps its place in the index, and
    why. Raises StorageError when the disk is full.
    """
    targets = pool.targets
    if not isinstance(targets, Classes):
        raise ConfigError(f"shards hold images with classes, but this data has images {targets.kind}")
    shards, begin = find_whole_shards(folder, split)
    encoder = ImageEncoder(pool, encode)
    pieces = cut(len(pool), AT_ONCE, start=begin)
    shard: Shard | None = None
    results = map_in_order(
        encoder, pieces, done=begin, title=f"{split} → {folder}", unit="images", num_workers=num_workers
    )
    try:
        for i, encoded in enumerate((encoded for piece in results for encoded in piece), start=begin):
            if isinstance(encoded, DamagedImage):
                if on_bad_image == "error":
                    raise DataError(
                        f"cannot read {pool.name(i)}: {encoded}; repair or remove it, or set "
                        "data.loading.on_bad_image=skip"
                    )
            elif shard is not None and not shard.takes(encoded, shard_bytes):
                shard.close()
                shards.append(shard.path)
                shard = None
            if shard is None:
                shard = Shard(folder, split, len(shards))
            shard.add(i, encoded, targets, shorten_name(pool.name(i)))
        if shard is None and not shards:
            shard = Shard(folder, split, 0)  # an empty shard
        if shard is not None:
            shard.close()
            shards.append(shard.path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageError(
            f"the disk is full; the {len(shards)} finished shards of {split} stay in {folder}, and the same "
            "command resumes after them"
        ) from error
    finally:
        if shard is not None:
            shard.give_up()
    return index_split(folder, split, shards, pool.fingerprint, repr(encode), keep_unreadable=on_bad_image == "record")


def shorten_name(name: str) -> str:
    """Give a file's name with the folder it lies in, and no more: the rest of the path means nothing elsewhere."""
    return "/".join(name.split("/")[-2:])


def find_whole_shards(folder: Path, split: str) -> tuple[list[Path], int]:
    """Find the shards that an earlier call finished, and how many images they hold."""
    shards: list[Path] = []
    count = 0
    while (path := folder / f"{split}-{len(shards):06d}.tar").is_file() and name_part(path).is_file():
        count += len(map_index(name_part(path))[0]["length"])
        shards.append(path)
    return shards, count


# -- all splits


def write_shards(
    pools: dict[str, Pool],
    class_names: list[str],
    folder: Path,
    encode: Callable[[Stored], EncodedImage],
    *,
    shard_bytes: int,
    num_workers: int,
    on_bad_image: str,
) -> dict[str, Any]:
    """Write all splits of a source, and index.json last: a folder that has it is whole. Returns its content.

    An interrupted writing of the same data is resumed; a complete one is left unchanged. Raises
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
                return cast(dict[str, Any], json.loads((folder / INDEX).read_text(encoding="utf-8")))
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
            write_whole(folder / INDEX, format_json(index))
            for rest in (*folder.glob("*.part"), *folder.glob("*.tmp")):
                rest.unlink()
            return index
    except Timeout as error:
        raise ConfigError(f"another process is packing into {folder}; wait for it, or give a new folder") from error


def check_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Raise ConfigError when a folder holds anything but a beginning of this plan."""
    remove_leftovers(folder)
    if not any(path.name != LOCK for path in folder.iterdir()):
        return write_whole(folder / PLAN, format_json(plan))
    if not (folder / PLAN).is_file():
        raise ConfigError(f"{folder} is neither empty nor an unfinished set of shards; give a new folder")
    found = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    if differing := [key for key in plan if plan[key] != found.get(key)]:
        raise ConfigError(f"{folder} was packed with another {' and '.join(differing)}; give a new folder")
    return None
