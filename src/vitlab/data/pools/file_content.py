"""Read a file, if it is one: a pipe would block, and a device may never end."""

import os
import stat
from pathlib import Path

MOST_BYTES = 2**30  # of one file: the largest image that is accepted is smaller, even at 8 bytes a pixel
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def not_a_file(mode: int) -> str:
    """Say in words what a path is instead of a file; empty for a file."""
    return "" if stat.S_ISREG(mode) else f"{KINDS.get(stat.S_IFMT(mode), 'something else')}, and no file"


def content(path: str | Path) -> bytes:
    """Read all bytes of a file. Raises OSError for what is no file, and for more than MOST_BYTES."""
    status = os.stat(path)
    if reason := not_a_file(status.st_mode):
        raise OSError(f"it is {reason}")
    if status.st_size > MOST_BYTES:
        raise OSError(f"it has {status.st_size:,} bytes, and {MOST_BYTES:,} is the limit")
    with open(path, "rb") as file:
        return file.read()
