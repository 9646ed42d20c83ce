"""Read the checkpoint that a run resumes from."""

import os
from pathlib import Path
from typing import Any

from vitlab.checkpoints import file
from vitlab.checkpoints.contents import check_state
from vitlab.checkpoints.run_folder import LATEST, find_checkpoint
from vitlab.checkpoints.run_identity import check_owner
from vitlab.errors import CheckpointError


def newest_state(run: str) -> tuple[Path, dict[str, Any]]:
    """Read the checkpoint that a run resumes from, and find its file: a named checkpoint, or the newest of a run's
    folder. If that is damaged, the one before it is used. Raises CheckpointError when there is none, and for one
    of another run."""
    path = find_checkpoint(run, *LATEST)
    before = path.with_name(f"{LATEST[-1]}.ckpt")
    try:
        checkpoint = read_state(path)
    except CheckpointError as error:
        if Path(run).is_file() or path == before or not before.is_file():
            raise
        checkpoint = read_state(before)
        check_owner(before, checkpoint)
        print(f"{error}; resuming from {before.name}, the checkpoint before it", flush=True)
        os.replace(before, path)
    check_owner(path, checkpoint)
    return path, checkpoint


def read_state(path: Path) -> dict[str, Any]:
    """Read a state that a run can go on from. Raises CheckpointError."""
    checkpoint = file.read(path)
    check_state(checkpoint, str(path))
    return checkpoint
