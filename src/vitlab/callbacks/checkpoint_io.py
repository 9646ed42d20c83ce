"""Let Lightning read and write checkpoints through `checkpoints/file.py`."""

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import CheckpointIO

from vitlab.checkpoints import file


class AtomicCheckpointIO(CheckpointIO):
    """Write checkpoints whole or not at all, and read them only if undamaged. `storage_options` of a save: a function
    that writes the checkpoint to the path, maybe later; None: it is written at once."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        (storage_options or file.write)(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return file.read(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)
