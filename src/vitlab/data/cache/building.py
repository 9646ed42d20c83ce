"""Build the folder of a cache: once, by one process, whole or not there."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vitlab.atomic_files import compute_digest, flush_folder, format_json, remove_leftovers, write_whole
from vitlab.errors import DataError, StorageError

KEY = "key.json"
FULL = (errno.ENOSPC, errno.EDQUOT)


def build_once(root: Path, key: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Give the folder below `root` with what `build(folder)` writes for `key`, plain values that identify it.

    It is built under another name, and renamed only once it is complete and on the disk. An interrupted build is handed
    to `build` again; if another process is building, this one waits. Raises DataError for a folder with another key,
    StorageError when the disk is full.
    """
    place = root / f"{key['cache']}-{compute_digest(format_json(key))}"
    if is_whole(place, key):
        return place
    root.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(root / f".{place.name}.lock", place):
        if is_whole(place, key):
            return place
        building = root / f"{place.name}.building"
        building.mkdir(exist_ok=True)
        remove_leftovers(building)
        try:
            build(building)
            write_whole(building / KEY, format_json(key))
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise StorageError(
                f"the disk is full: {building} holds the finished part of a cache, which the next run continues"
                "; free some space, remove it, or set data.cache.root to another disk"
            ) from error
        flush_folder(building)
        os.rename(building, place)
        flush_folder(root)
    return place


def is_whole(place: Path, key: dict[str, Any]) -> bool:
    if not place.is_dir():
        return False
    try:
        found = json.loads((place / KEY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{place} is a damaged cache; remove it, and it is built again") from error
    if found != json.loads(format_json(key)):
        raise DataError(f"{place} is a cache of other data; remove it, and it is built again")
    return True


@contextmanager
def wait_for_lock(path: Path, place: Path) -> Iterator[None]:
    """Take the lock; say so if another process holds it and we have to wait."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is building the cache {place}; waiting for it", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
