"""The folder of a run: where its checkpoints lie, and how a user names it."""

from pathlib import Path

from vitlab.errors import CheckpointError

CHECKPOINTS = "checkpoints"


def run_folder(run: str | Path) -> Path:
    """The folder of a run, given itself or one of its checkpoints; nothing is opened."""
    path = Path(run)
    if path.suffix == ".ckpt":
        return path.parent.parent if path.parent.name == CHECKPOINTS else path.parent
    return path


def find_checkpoint(run: str | Path, *names: str) -> Path:
    """The file that `run` names: itself, or the first of `names` (such as "best", "latest") that its folder holds.

    Raises CheckpointError when there is none.
    """
    path = Path(run)
    if path.is_file():
        return path
    if not path.exists():
        raise CheckpointError(f"there is no run or checkpoint at {path}")
    for name in names:
        if (candidate := path / CHECKPOINTS / f"{name}.ckpt").is_file():
            return candidate
    raise CheckpointError(
        f"{path / CHECKPOINTS} holds no {' or '.join(f'{n}.ckpt' for n in names)}: no run saved a state there"
    )
