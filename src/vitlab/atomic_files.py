"""Files that are there whole or not at all.

A file is written under another name in its folder, brought to the disk, and renamed: a kill, a full disk or a loss of
power leaves the old one or the new one.
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
from typing import Any

from vitlab.errors import StorageError

TEMPORARY = re.compile(r"\..+\.(\d+)(\.tmp)?")  # the name to write to; runs of 2026 have some without .tmp


@contextmanager
def writing_whole(path: Path, *, previous: Path | None = None) -> Iterator[Path]:
    """Give another name in the same folder to write to, flush what is there in the end to the disk, and rename it.

    Whoever may read new files of the user may read it, also where a library writes for the owner alone. `previous` is
    where the file goes that it replaces. Raises StorageError when the folder has gone, and OSError with `path`.
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
        if error.filename == str(temporary):  # a name that nobody has given
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one go."""
    with writing_whole(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Write plain values for a person to read."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8"))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table for a person or a program to read."""
    with writing_whole(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


@contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """Yield another folder beside it to write to, and rename it in the end; a file that is there already is replaced,
    and others stay. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
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
    """Remove what writers left behind in a folder when they were killed; `of`: a file or folder of this name alone."""
    for path in folder.glob(f".{of}" if of == "*" else f".{glob.escape(of)}.*"):
        found = TEMPORARY.fullmatch(path.name)
        if found and not alive(int(found[1])):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def alive(pid: int) -> bool:
    """Whether a process of this machine has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def flush_folder(folder: Path) -> None:
    """Make a rename in `folder` outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_json(content: Any) -> bytes:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")  # file names that are no UTF-8 become escapes that JSON reads


def digest_of(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
