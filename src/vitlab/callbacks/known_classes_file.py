"""Keep the `KnownClasses` of a run's best model in a file of its folder."""

from pathlib import Path

import pytorch_lightning as pl
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vitlab.atomic_files import write_atomically
from vitlab.errors import CheckpointError
from vitlab.tasks.known_classes import KnownClasses

FILE = "known_classes.safetensors"
TENSORS, NUMBERS = KnownClasses._fields[:4], KnownClasses._fields[4:]


def save_known_classes(trainer: pl.Trainer, known: KnownClasses) -> None:
    """Write the file into the run's folder, on the first rank."""
    if trainer.is_global_zero:
        numbers = {name: repr(getattr(known, name)) for name in NUMBERS}
        tensors = {name: getattr(known, name).contiguous() for name in TENSORS}
        with write_atomically(Path(trainer.default_root_dir) / FILE) as temporary:
            save_file(tensors, temporary, metadata=numbers)


def read_known_classes(folder: Path) -> KnownClasses | None:
    """Read the file of a run; None where it has none. Raises CheckpointError for a damaged one."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            told = file.metadata() or {}
            parts = [*map(file.get_tensor, TENSORS), *(float(told[name]) for name in NUMBERS)]
        known = KnownClasses._make(parts)
        D, K = len(known.mean), len(known.offsets)
        if known.curvature.shape != (D, D) or known.slopes.shape != (D, K):
            raise ValueError("the shapes do not fit")
    except (OSError, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged, or of an earlier version ({error}); remove it to predict without it"
        ) from error
    return known
