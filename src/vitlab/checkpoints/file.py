"""A checkpoint on disk: plain types and tensors, written whole or not at all, read only when undamaged."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_atomically
from vitlab.checkpoints.contents import check_contents
from vitlab.errors import CheckpointError, StorageError


def write(
    checkpoint: dict[str, Any],
    path: Path,
    previous: Path | None = None,
    chain: Callable[[Path], None] | None = None,
) -> None:
    """Write a checkpoint; a kill or a full disk at any moment leaves either the old file or the new one.

    `previous` is where the file goes that it replaces. `chain` is called with the whole file before it gets its name.
    Raises StorageError.
    """
    import torch

    try:
        path.parent.mkdir(exist_ok=True)
        with write_atomically(path, previous=previous) as temporary:
            with open(temporary, "wb") as file:
                torch.save(checkpoint, file)
            if chain is not None:
                chain(temporary)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        if isinstance(error, torch.AcceleratorError):  # of an earlier kernel, noticed only here
            raise
        raise StorageError(f"cannot write the checkpoint {path}: {error}") from error


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, after its checksums hold.

    Nothing in it is executed (weights_only). Raises CheckpointError for a file that is missing, damaged, or not ours.
    """
    import torch

    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    check_records(path)
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here, none of them documented
        raise CheckpointError(
            f"{path} is not a checkpoint, or holds other objects than tensors and plain types"
        ) from error
    if not isinstance(checkpoint, dict) or not {"state_dict", "run"} <= checkpoint.keys():
        raise CheckpointError(f"{path} was not written by vitlab: it has no state_dict and run")
    check_contents(checkpoint, str(path))
    return checkpoint


def peek(path: Path) -> dict[str, Any]:
    """Return a checkpoint's record of its run, without reading tensors; empty if the file is missing or damaged."""
    import torch

    try:
        checkpoint = torch.load(path, map_location="meta", mmap=True, weights_only=True)
        return dict(checkpoint["run"])
    except Exception:  # torch raises many kinds here, none of them documented
        return {}


def check_records(path: Path) -> None:
    """Raise CheckpointError unless the checksum of each record of torch's zip file holds. Records that would be longer
    than the file are refused by its header, before any of them is read: torch compresses none."""
    try:
        with zipfile.ZipFile(path) as archive:
            long = sum(record.file_size for record in archive.infolist()) > path.stat().st_size
            damaged = None if long else archive.testzip()
    except Exception as error:  # zipfile raises many kinds for damaged headers
        raise CheckpointError(f"{path} is not a checkpoint, or it is damaged: {error}") from error
    if long:
        raise CheckpointError(f"{path} is damaged: it states a larger size than it has")
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged: the checksum of its record {damaged} does not hold")
