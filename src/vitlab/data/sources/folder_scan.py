"""Find the image files below a folder: one listing of each folder, one look at each file."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vitlab.data.pools.file_content import not_a_file
from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.sources.links import Bounds, check_folder
from vitlab.errors import DataError

EXTENSIONS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
SUFFIXES = {extension[1:].encode() for extension in EXTENSIONS}


class Scan(NamedTuple):
    """The image files below a folder, sorted, and the folders that were listed; all paths are relative to `root`."""

    paths: PackedNames
    digest: bytes  # digest of paths and sizes
    folders: dict[bytes, int]  # when each last changed, in nanoseconds


def scan(root: bytes, folder: bytes, bounds: Bounds | None) -> Scan:
    """List `folder`, which lies below `root`. Raises DataError as `list_files` does."""
    files, folders = list_files(root, folder, bounds)
    digest = hashlib.blake2b(b"".join([b"%b %d\n" % file for file in files]), digest_size=8).digest()
    return Scan(PackedNames.pack([name for name, _ in files]), digest, folders)


def list_files(
    root: bytes, folder: bytes, bounds: Bounds | None = None
) -> tuple[list[tuple[bytes, int]], dict[bytes, int]]:
    """List the image files at any depth below `folder`: sorted paths, sizes in bytes, and when each folder changed.

    Hidden names, other extensions and links to folders are passed over. Raises DataError for a broken link, or one out
    of `bounds`, for a pipe, a socket or a device, and for what cannot be listed.
    """
    files: list[tuple[bytes, int]] = []
    folders: dict[bytes, int] = {}
    pending = [folder]
    try:
        while pending:
            below = pending.pop()
            path = os.path.join(root, below)
            folders[below] = os.stat(path).st_mtime_ns  # before the listing, so that a change during it is noticed
            prefix = below + b"/" if below else b""
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith(b"."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(prefix + name)
                    elif b"." in name and name.rpartition(b".")[2].lower() in SUFFIXES:
                        status = entry.stat()
                        if stat.S_ISDIR(status.st_mode):
                            continue
                        if reason := not_a_file(status.st_mode):
                            raise DataError(f"{os.fsdecode(entry.path)} is {reason}; remove it")
                        if bounds is not None and entry.is_symlink():
                            bounds.check_file(entry.path)
                        files.append((prefix + name, status.st_size))
    except OSError as error:
        path = error.filename
        if os.path.islink(path):
            raise DataError(f"{os.fsdecode(path)} is a broken link; repair or remove it") from error
        raise DataError(f"{os.fsdecode(path)} cannot be listed: {error.strerror}") from error
    return sorted(files), folders


def class_folders(folder: Path, bounds: Bounds | None) -> list[str]:
    """List the folders in `folder`, sorted. Raises DataError as `check_folder` does."""
    entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    for entry in entries:
        if entry.is_symlink():
            check_folder(os.fsencode(entry.path), bounds)
    return sorted(entry.name for entry in entries if entry.is_dir())


def image_files(folder: str) -> Iterator[str]:
    """List whatever is named like an image file at any depth below `folder`, sorted, one folder at a time; who reads it
    finds out what it is. Raises DataError for a folder that cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            named = [_sortable(entry) for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{folder} cannot be listed: {error.strerror}") from error
    for name in sorted(filter(None, named)):
        path = os.path.join(folder, os.fsdecode(name))
        if name.endswith(b"/"):
            yield from image_files(path[:-1])
        else:
            yield path


def _sortable(entry: os.DirEntry[str]) -> bytes:
    """Give the name of an image file, or of a folder with the slash by which its files sort, and nothing for others."""
    if entry.is_dir():
        return b"" if entry.is_symlink() else os.fsencode(entry.name) + b"/"
    return os.fsencode(entry.name) if os.path.splitext(entry.name)[1].lower() in EXTENSIONS else b""
