"""Keep the `KnownClasses` of a run's best model in a file of its folder."""

from pathlib import Path

import pytorch_lightning as pl
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vitlab.atomic_files import write_atomically
from vitlab.errors import CheckpointError
from vitlab.tasks.known_classes import KnownClasses

FILE = "known_classes.safetensors"


def save_known_classes(trainer: pl.Trainer, known: KnownClasses) -> None:
    """Write the file into the run's folder, on the first rank."""
    if trainer.is_global_zero:
        tensors = {"means": known.means.contiguous(), "whitening": known.whitening.contiguous()}
        with write_atomically(Path(trainer.default_root_dir) / FILE) as temporary:
            save_file(tensors, temporary, metadata={"threshold": repr(known.threshold)})


def read_known_classes(folder: Path) -> KnownClasses | None:
    """Read the file of a run; None where it has none. Raises CheckpointError for a damaged one."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            means, whitening = (file.get_tensor(key) for key in ("means", "whitening"))
            threshold = float(file.metadata()["threshold"])
        if means.ndim != 2 or whitening.shape != (means.shape[1],) * 2:
            raise ValueError("the shapes do not fit")
    except (OSError, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); remove it to predict without it") from error
    return KnownClasses(means, whitening, threshold)
