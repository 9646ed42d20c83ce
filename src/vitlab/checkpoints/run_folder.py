"""Find the folder of a run, and the checkpoints in it, by what a user calls it."""

from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from vitlab.errors import CheckpointError, ConfigError

CHECKPOINTS = "checkpoints"
LATEST = ("latest", "previous")  # states to go on from, the newest first
JOBS = "jobs"  # in the folder of a sweep, beside its runs: what was frozen of each, and how far it has come
OF_A_RUN = ("config.yaml", "provenance.json", "metrics.csv", CHECKPOINTS)


def run_folder(run: str | Path) -> Path:
    """Give the folder of a run, from itself or one of its checkpoints; nothing is opened."""
    path = Path(run)
    if path.suffix == ".ckpt":
        return path.parent.parent if path.parent.name == CHECKPOINTS else path.parent
    return path


def find_checkpoint(run: str | Path, *names: str) -> Path:
    """Give the file that `run` names: itself, or the first of `names` (such as "best", "latest") that its folder holds.
    Raises CheckpointError when there is none."""
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


def frozen_job(folder: Path) -> Path | None:
    """Give where the sweep keeps the job whose run has this folder; None for a run outside of sweeps."""
    home = folder.parent / JOBS / folder.name
    return home if (home / "job.json").is_file() else None


def has_state(folder: Path) -> bool:
    """Whether a run has saved a state to go on from."""
    return any((folder / CHECKPOINTS / f"{name}.ckpt").is_file() for name in LATEST)


def not_begun(run: str | Path) -> Path | None:
    """Give where the sweep keeps the job whose folder `run` is, if the run has saved no state to go on from yet."""
    folder = Path(run)
    return None if has_state(folder) else frozen_job(folder.absolute())


def make_new(folder: Path) -> Path:
    """Make the folder of a new run; where one that started in the same second has it, number this one after it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for place in numbered(folder):
        try:
            place.mkdir()
            return place
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


def numbered(folder: Path) -> Iterator[Path]:
    return chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))


def check_unused(folder: Path) -> None:
    """Raise ConfigError for a folder that holds a run, which a new one would overwrite."""
    if not any((folder / name).exists() for name in OF_A_RUN):
        return
    if has_state(folder):
        advice = f"go on with it by resume={folder}, or give another hydra.run.dir"
    else:
        advice = "it has saved no state yet: remove it, or give another hydra.run.dir"
    raise ConfigError(f"{folder} holds a run; {advice}")
