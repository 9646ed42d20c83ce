"""Write files atomically.

A file is written under a temporary name in its folder, flushed to the disk, and renamed. After a kill, a full disk or a
power failure, either the old or the new file is there, complete.
"""

import csv
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from vitlab.errors import StorageError

TEMPORARY = re.compile(r"\..+\.(\d+)(\.tmp)?")  # earlier versions left out .tmp


@contextmanager
def write_atomically(path: Path, *, previous: Path | None = None) -> Iterator[Path]:
    """Yield a temporary name in the same folder to write to; then flush that file to the disk and rename it to `path`.

    The file gets the user's default permissions, even if a library wrote it for its owner alone. An existing file is
    renamed to `previous`, if given. Raises StorageError if the folder has been removed, and OSError that names `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        flush_folder(path.parent)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
            raise StorageError(f"cannot write {path}: its folder has been removed or renamed") from error
        if error.filename == str(temporary):  # the user does not know that name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write bytes to a file, atomically."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Write plain values as indented JSON, atomically."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8"))


class LineFeeds:
    """Lets rows of `csv.writer` end with a line feed. With its own `lineterminator`, it would leave a carriage return
    in a value without quotes."""

    def __init__(self, file: IO[str]):
        self.file = file

    def write(self, row: str) -> int:
        return self.file.write(row.removesuffix("\r\n") + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV, atomically."""
    with write_atomically(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(LineFeeds(file))
        writer.writerow(header)
        writer.writerows(rows)


@contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to; then rename it to `path`. If `path` exists, the files move into it and
    replace those of the same names; others stay. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        readable = temporary.stat().st_mode & 0o666  # a library may write a file for its owner alone
        for file in temporary.rglob("*"):
            if file.is_file():
                file.chmod(readable)
                with open(file, "rb+") as written:
                    os.fsync(written.fileno())
        if path.is_dir() and any(path.iterdir()):
            for file in temporary.iterdir():
                os.replace(file, path / file.name)
        else:
            os.replace(temporary, path)
        flush_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to metrics.damaged.csv, or metrics.damaged-2.csv if that exists; return the new path."""
    names = (f"{path.stem}.damaged{number}{path.suffix}" for number in chain([""], count(-2, -1)))
    aside = next(place for place in map(path.with_name, names) if not place.exists())
    os.replace(path, aside)
    return aside


def remove_leftovers(folder: Path, of: str = "*") -> None:
    """Remove the temporary files in a folder whose writers were killed; `of` restricts this to one target name."""
    for path in folder.glob(f".{of}" if of == "*" else f".{glob.escape(of)}.*"):
        found = TEMPORARY.fullmatch(path.name)
        if found and not is_alive(int(found[1])):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def flush_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def format_json(content: Any) -> bytes:
    """Return content as JSON; bytes of file names that are not UTF-8 become escapes."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def compute_digest(content: bytes | memoryview) -> str:
    """Return a digest of 16 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
