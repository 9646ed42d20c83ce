"""A checkpoint on disk: plain types and tensors, written whole or not at all, read only when undamaged."""

import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitlab.errors import CheckpointError, StorageError
from vitlab.whole_files import flush_folder


def write(checkpoint: dict[str, Any], path: Path) -> None:
    """Write to a temporary file in the same folder, flush it to the disk, and rename it to `path`.

    A kill or a full disk at any moment leaves either the old file or the new one. Raises StorageError.
    """
    import torch

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        flush_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        if isinstance(error, torch.AcceleratorError):  # of a kernel before, which copying the weights waits for
            raise
        raise StorageError(f"cannot write the checkpoint {path}: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, after its checksums hold.

    Nothing in it is executed (weights_only). Raises CheckpointError for a file that is missing, damaged, or not ours.
    """
    import torch

    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises many kinds for damaged headers
        raise CheckpointError(f"{path} is not a checkpoint, or it is damaged: {error}") from error
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged: the checksum of its record {damaged} does not hold")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here, none of them documented
        raise CheckpointError(f"{path} holds more than tensors and plain types, or is no checkpoint") from error
    if not isinstance(checkpoint, dict) or not {"state_dict", "run"} <= checkpoint.keys():
        raise CheckpointError(f"{path} was not written by vitlab: it has no state_dict and run")
    return checkpoint
