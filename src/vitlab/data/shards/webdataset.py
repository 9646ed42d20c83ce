"""An index of WebDataset tars that others have made: each is read once from front to end, and stays as it is.

A sample is the run of members with the same key, the path up to its first dot: an image (jpg png webp ...), and its
class in a member `cls`, or as `label` or `cls` in a member `json`, which may list several. The class is an integer, or
a text, then numbered in alphabetical order. Split names are read off the paths: train, val, validation, test; anything
else is train.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitlab.atomic_files import compute_digest, format_json, write_whole
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.pools.file_content import MOST_BYTES
from vitlab.data.pools.labels import MOST_CLASSES
from vitlab.data.pools.packed_names import format_name
from vitlab.data.shards.index import FORMAT, INDEX, VERSION, Rows, save_index
from vitlab.data.targets import multi_hot
from vitlab.errors import ConfigError, DataError, format_error

IMAGES = {"bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"}
PARTS = IMAGES | {"cls", "json"}  # members of a sample
CHUNK = 2**20  # bytes that are read at once
SPLIT = re.compile(r"(?<![a-z])(train|val|test)(?:idation)?(?![a-z])")
Name = int | str  # a class
Label = Name | tuple[Name, ...]


@dataclass(frozen=True)
class TarImage:
    """An image in a tar: its member's name, where its content begins, the content, and its label."""

    name: str
    offset: int
    content: bytes
    label: Label


@dataclass
class TarReader:
    """Read tars, by their number in `names`, to the rows of each and the labels of its images."""

    filesystem: Any
    root: str
    names: list[str]

    def __call__(self, numbers: range) -> list["TarContents"]:
        return [self.walk(self.names[number]) for number in numbers]

    def walk(self, name: str) -> "TarContents":
        """Read a tar from front to end. Raises DataError for one that is damaged, or cut off."""
        rows, labels, skipped = Rows(), [], dict[str, str]()
        place = f"{self.root}/{name}"
        try:
            if self.filesystem.info(place)["type"] != "file":
                raise DataError(f"{place} is a pipe or a device, not a file; remove it")
            with self.filesystem.open(place, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
                for found in samples(tar, place, skipped):
                    rows.add(
                        0, found.offset, found.content, np.int64(0), None, found.name
                    )  # the class is numbered later
                    labels.append(found.label)
                check_end(tar, file, place, rows)
                return TarContents(rows, labels, file.seek(0, 2), skipped)
        except (OSError, tarfile.TarError, EOFError, MemoryError) as error:  # a header may claim any size
            raise DataError(f"{place} is not a complete, uncompressed tar: {format_error(error)}") from error


class TarContents(NamedTuple):
    """What a tar holds: a row and a label for each image, its size in bytes, and why members were skipped, by name."""

    rows: Rows
    labels: list[Label]
    size: int
    skipped: dict[str, str]


def check_end(tar: tarfile.TarFile, file: Any, place: str, rows: Rows) -> None:
    """Raise DataError unless the members that were read end with the mark of a tar's end, and nothing follows it."""
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        after = f" after {rows.names[-1].decode('utf-8', 'replace')}" if rows.names else ""
        raise DataError(
            f"{place} is cut off or damaged{after}: {len(rows.names):,} complete images, but no end; copy it again"
        )
    while chunk := file.read(CHUNK):
        if chunk.strip(b"\0"):
            raise DataError(f"{place} goes on after its end, like two joined tars; pack it again, or split it")


def samples(tar: tarfile.TarFile, place: str, skipped: dict[str, str]) -> Iterator[TarImage]:
    """Yield the images of a tar, and note links and devices that have the name of a part of a sample as `skipped`.
    Raises DataError for an image without a class."""
    key, image, label = "", None, None

    def finish() -> Iterator[TarImage]:
        if image is not None:
            if label is None:
                raise DataError(f"{place}: {image[0]} has no class; add a member .cls, or a label in a .json")
            yield TarImage(*image, label)

    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # it would keep them all
        if member.size < 0:
            raise DataError(f"{place}: {member.name} has {member.size:,} bytes; the tar is damaged")
        folder, _, file = member.name.rpartition("/")
        stem, _, extension = file.partition(".")
        if not member.isfile():
            if extension.lower() in PARTS:
                skipped[format_name(member.name)] = "a link" if member.islnk() or member.issym() else "no file"
            continue
        if f"{folder}/{stem}" != key:
            yield from finish()
            key, image, label = f"{folder}/{stem}", None, None
        if extension.lower() not in PARTS:
            continue
        if member.size > MOST_BYTES:
            raise DataError(f"{place}: {member.name} has {member.size:,} bytes, and {MOST_BYTES:,} are the most")
        content = tar.extractfile(member).read()  # type: ignore[union-attr]  # it is a file
        if extension.lower() in IMAGES:
            image = (member.name, member.offset_data, content)
        elif extension == "cls" or label is None:
            label = parse_label(content, extension, f"{place}: {member.name}")
    yield from finish()


def parse_label(content: bytes, extension: str, place: str) -> Label | None:
    try:
        value: Any = content.decode().strip()
        if extension == "json":
            fields = json.loads(value)
            value = fields.get("label", fields.get("cls"))
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{place} holds no class: {error}") from error
    names = [parse_class(name) for name in (value if isinstance(value, list) else [value])]
    if odd := [name for name in names if isinstance(name, int) and not 0 <= name < MOST_CLASSES]:
        raise DataError(f"{place} holds the class {odd[0]}; classes count from 0, and {MOST_CLASSES:,} are the most")
    if None in names:
        return None
    return tuple(names) if isinstance(value, list) else names[0]  # type: ignore[arg-type]


def parse_class(value: Any) -> int | str | None:
    """Read a class: a number, also one written as text, or a name; None for anything else."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def index_tars(root: str, output: Path, *, class_names: list[str] | None, num_workers: int) -> dict[str, Any]:
    """Write the index of all tars below `root`, a path or URL, into `output`; returns the content of index.json."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(root)
    path = path.rstrip("/")
    try:
        found = sorted(name for name in filesystem.find(path) if name.endswith(".tar"))
    except Exception as error:  # each storage raises its own kinds
        raise DataError(f"cannot list {root}: {error}") from error
    names = [name.removeprefix(f"{path}/") for name in found]
    if not names:
        raise DataError(f"index={root}: there is no .tar below it")
    splits: dict[str, list[str]] = {}
    for name in names:
        match = SPLIT.search(name.lower())
        splits.setdefault(match[1] if match else "train", []).append(name)
    if "train" not in splits:
        raise DataError(f"index={root}: no tar has train in its name; the splits found are {', '.join(splits)}")
    walked: dict[str, list[TarContents]] = {}
    for split, tars in splits.items():
        pieces, title = cut(len(tars), 1), f"index of {split}"
        results = map_in_order(
            TarReader(filesystem, path, tars), pieces, done=0, title=title, unit="tars", num_workers=num_workers
        )
        walked[split] = [result for piece in results for result in piece]
    numbers, class_names = number_labels(
        {name for parts in walked.values() for tar in parts for label in tar.labels for name in list_names(label)},
        class_names,
    )
    index: dict[str, Any] = {"format": FORMAT, "version": VERSION, "class_names": class_names, "splits": {}}
    if Path(path).absolute() != output.absolute():
        index["root"] = root if "://" in root else str(Path(path).absolute())
    output.mkdir(parents=True, exist_ok=True)
    several = any(isinstance(label, tuple) for parts in walked.values() for tar in parts for label in tar.labels)
    for split, parts in walked.items():
        columns = join_rows(parts)
        found = [[numbers[name] for name in list_names(label)] for tar in parts for label in tar.labels]
        columns["target"] = (
            multi_hot(found, len(class_names)).values if several else np.array(found, np.int64).reshape(-1)
        )
        shards = [(name, tar.size) for name, tar in zip(splits[split], parts, strict=True)]
        skipped = {
            f"{name}: {member}": why
            for (name, _), tar in zip(shards, parts, strict=True)
            for member, why in tar.skipped.items()
        }
        fingerprint = compute_digest(b"".join(columns[name].tobytes() for name in ("target", "crc32", "length")))
        index["splits"][split] = (
            {"fingerprint": fingerprint}
            | ({"skipped": skipped} if skipped else {})
            | save_index(output, split, columns, shards)
        )
    write_whole(output / INDEX, format_json(index))
    return index


def list_names(label: Label) -> tuple[Name, ...]:
    return label if isinstance(label, tuple) else (label,)


def number_labels(labels: set[Name], class_names: list[str] | None) -> tuple[dict[Name, int], list[str]]:
    """Number each label, and list the names of all classes."""
    texts = sorted(label for label in labels if isinstance(label, str))
    integers = [label for label in labels if isinstance(label, int)]
    if texts and integers:
        raise DataError(f"some classes are integers ({integers[0]}), others are not ({texts[0]})")
    if texts:
        names = class_names or texts
        if unknown := [text for text in texts if text not in names]:
            raise ConfigError(f"class_names does not have the class {unknown[0]}")
        return {text: names.index(text) for text in texts}, names
    if not integers:
        raise DataError("the tars hold no image with a class; one has members KEY.jpg and KEY.cls, or KEY.json")
    names = class_names or [str(number) for number in range(max(integers) + 1)]
    if max(integers) >= len(names) or min(integers) < 0:
        raise ConfigError(f"classes run from {min(integers)} to {max(integers)}, and class_names has {len(names)}")
    return {number: number for number in integers}, names


def join_rows(parts: list[TarContents]) -> dict[str, np.ndarray]:
    """Join the rows of tars to the columns of a split, without the classes."""
    rows = Rows()
    for shard, tar in enumerate(parts):
        rows.names += tar.rows.names
        rows.rows += [(shard, *row[1:]) for row in tar.rows.rows]
    return rows.columns()
