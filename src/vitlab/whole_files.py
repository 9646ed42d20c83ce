"""Files that are there whole or not at all.

A file is written under another name in its folder, brought to the disk, and renamed: a kill, a full disk or a loss of
power leaves the old one or the new one.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def writing_whole(path: Path) -> Iterator[Path]:
    """Another name in the same folder, to write to; what is there in the end is brought to the disk and renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it once it is on the disk."""
    with writing_whole(path) as temporary:
        temporary.write_bytes(content)


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
