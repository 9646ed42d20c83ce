"""Index a folder of images in one file that a later start reads instead of listing a million entries.

A folder's modification time changes when a name in it appears, goes or changes: while all of them are as recorded, so
are the names. A file rewritten in place is not noticed: delete the index to have the folder listed again. n images, F
folders
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from vitlab.data.pools.columns import map_checked, write_checked
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.pools.pool import Pool
from vitlab.data.sources.folder_scan import EXTENSIONS, class_folders, scan
from vitlab.data.sources.links import Bounds, check_folder
from vitlab.data.targets import OneClass
from vitlab.errors import DataError

VERSION = 2
ABSENT = -1  # the time of a folder that is not there
RECENT = 2_000_000_000  # nanoseconds; some file systems count their times in steps of two seconds
PATIENCE = 2.0  # seconds without a sign of progress


class FolderIndex(NamedTuple):
    """What lies in the folders of the splits. `path` is the file that holds it, None where there is none."""

    path: Path | None
    about: dict[str, Any]
    arrays: dict[str, np.ndarray]  # "folders" names, "times" (F,), and of each split names and "SPLIT.targets" (n,)

    @property
    def class_names(self) -> list[str]:
        return cast(list[str], self.about["class_names"])

    def pool(self, split: str) -> Pool:
        paths, targets = get_names(self.arrays, split), OneClass(self.arrays[f"{split}.targets"])
        about = targets, self.about["fingerprints"][split], self.about["root"]
        return FilePool(paths, *about) if self.path is None else IndexedFiles(self.path, split, paths, *about)

    def pools(self) -> dict[str, Pool]:
        return {split: self.pool(split) for split in self.about["fingerprints"]}

    def is_current(self) -> bool:
        """Whether no folder has changed since it was listed."""
        root = os.fsencode(self.about["root"])
        folders = get_names(self.arrays, "folders")
        recorded = self.arrays["times"].tolist()
        return all(
            find_change_time(root, os.fsencode(name)) == time for name, time in zip(folders, recorded, strict=True)
        )


class IndexedFiles(FilePool):
    """Files whose names and classes are mapped from an index: a worker that is spawned is told where it lies."""

    def __init__(self, index: Path, split: str, *pool: Any):
        super().__init__(*pool)
        self.index = index
        self.split = split

    def __reduce__(self) -> Any:
        return reopen, (str(self.index), self.split, self.fingerprint)


def reopen(index: str, split: str, fingerprint: str) -> Pool:
    """Open the pool that another process has opened. Raises DataError when the index has been replaced since."""
    try:
        pool = FolderIndex(Path(index), *map_checked(Path(index), check=False)).pool(split)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the index {index} was removed after this run began ({error}); start again") from error
    if pool.fingerprint != fingerprint:
        raise DataError(f"the index {index} was replaced after this run began, because its images changed; start again")
    return pool


def open_index(root: Path, splits: dict[str, str], index_root: str | None, allow_outside: bool) -> FolderIndex:
    """Give the index of root/<splits[split]>/<class>/*: from below `index_root` if it is there, whole and current; else
    built, and kept there. Raises DataError for what a data set may not be."""
    if index_root is None:
        return build(root, splits, allow_outside)
    about = {"version": VERSION, "root": os.path.abspath(root), "splits": splits, "extensions": sorted(EXTENSIONS)}
    if not allow_outside:
        about["bounds"] = os.path.realpath(root)
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=8).hexdigest()
    path = Path(index_root) / f"{ascii_name(root)}-{digest}.index"
    index = load_index(path)
    if index is not None and index.is_current():
        return index
    start = time.time_ns()
    index = build(root, splits, allow_outside)
    times, end = index.arrays["times"], time.time_ns()
    if np.any((start - RECENT < times) & (times < end + RECENT)):
        return index  # a folder may change again within one step of its clock
    try:
        write_checked(path, index.about, index.arrays)
    except OSError as error:
        reason = f"cannot write {path} ({error.strerror}); {root} is listed at each start"
        warnings.warn(f"data.source.index_root: {reason}", stacklevel=2)
        return index
    return load_index(path) or index


def ascii_name(root: Path) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in root.name)


def load_index(path: Path) -> FolderIndex | None:
    """Read the index from a file; None where there is none, or a damaged one."""
    try:
        return FolderIndex(path, *map_checked(path))
    except (OSError, ValueError):
        return None


def build(root: Path, splits: dict[str, str], allow_outside: bool) -> FolderIndex:
    """List every class folder. `splits` names the folder of each split, of which only that of train must be there."""
    place = os.fsencode(os.path.abspath(root))
    bounds = None if allow_outside else Bounds(place)
    for folder in splits.values():
        if os.path.islink(root / folder):
            check_folder(os.path.join(place, os.fsencode(folder)), bounds)
    times = {os.fsencode(folder): find_change_time(place, os.fsencode(folder)) for folder in splits.values()}
    there = [split for split in splits if times[os.fsencode(splits[split])] >= 0]
    classes = {split: class_folders(root / splits[split], bounds) for split in there}
    class_names = classes["train"]
    if not class_names:
        raise DataError(f"{root / splits['train']} holds no class folder; put images into {splits['train']}/<class>/*")
    work = [(split, name, os.path.join(splits[split], name)) for split in classes for name in classes[split]]
    numbers = {name: number for number, name in enumerate(class_names)}
    for _, name, folder in work:
        if name not in numbers:
            raise DataError(f"{root / folder} is a class that {root / splits['train']} does not have")
    digests = {split: hashlib.blake2b(digest_size=8) for split in classes}
    paths: dict[str, list[PackedNames]] = {split: [] for split in classes}
    counts: dict[str, list[int]] = {split: [] for split in classes}
    for split, _, folder in show_progress(work, len(work), f"listing {root}"):
        found = scan(place, os.fsencode(folder), bounds)
        if not found.paths:
            raise DataError(f"class folder {root / folder} holds no image ({' '.join(sorted(EXTENSIONS))})")
        digests[split].update(found.digest)
        paths[split].append(found.paths)
        counts[split].append(len(found.paths))
        times |= found.folders
    arrays = {"times": np.array(list(times.values()), dtype=np.int64)}
    put_names(arrays, "folders", PackedNames.pack(times))
    for split in classes:
        put_names(arrays, split, PackedNames.join(paths[split]))
        labels = np.array([numbers[name] for name in classes[split]], dtype=np.int64)
        arrays[f"{split}.targets"] = np.repeat(labels, counts[split])
    fingerprints = {split: digest.hexdigest() for split, digest in digests.items()}
    about = {"root": os.fsdecode(place), "class_names": class_names, "fingerprints": fingerprints}
    return FolderIndex(None, about, arrays)


def put_names(arrays: dict[str, np.ndarray], key: str, names: PackedNames) -> None:
    arrays[f"{key}.block"], arrays[f"{key}.offsets"] = names.block, names.offsets


def get_names(arrays: dict[str, np.ndarray], key: str) -> PackedNames:
    return PackedNames(arrays[f"{key}.block"], arrays[f"{key}.offsets"])


def find_change_time(root: bytes, folder: bytes) -> int:
    """Give when the names in a folder last changed, in nanoseconds; ABSENT where there is no such folder."""
    try:
        return os.stat(os.path.join(root, folder)).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def show_progress(items: Iterable[Any], total: int, description: str) -> Iterator[Any]:
    """Yield the items, with a bar on the terminal once they take long."""
    from rich.progress import Progress

    start = time.monotonic()
    progress = Progress(transient=True)
    task = progress.add_task(description, total=total)
    patient = progress.console.is_terminal
    try:
        for item in items:
            yield item
            progress.advance(task)
            if patient and time.monotonic() - start > PATIENCE:
                progress.start()
                patient = False
    finally:
        if progress.live.is_started:
            progress.stop()
