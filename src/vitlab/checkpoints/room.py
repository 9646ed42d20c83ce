"""Check that the disk has room before it is needed."""

import shutil
from pathlib import Path

from vitlab.errors import StorageError

MIB = 2**20


def free_bytes(folder: Path) -> int:
    """Count the free bytes of the disk that a folder lies on, or will lie on."""
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    return shutil.disk_usage(existing).free


def check_room(folder: Path, needed: int) -> None:
    """Raise StorageError where fewer bytes are free than needed."""
    if (free := free_bytes(folder)) < needed:
        raise StorageError(
            f"{folder} needs room for {needed / MIB:,.0f} MiB of checkpoints, and its disk has {free / MIB:,.0f} MiB "
            "left: free some, or give another hydra.run.dir"
        )
