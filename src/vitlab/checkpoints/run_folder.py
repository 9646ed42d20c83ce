"""Find the folder of a run, and the checkpoints in it, by what a user calls it."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_json
from vitlab.errors import CONTROL, CheckpointError, ConfigError, StorageError
from vitlab.invocation import shorten_path

MIB = 2**20
CHECKPOINTS = "checkpoints"
CONFIG = "config.yaml"
IDENTITY = ".identity"  # which run the folder belongs to, in JSON
LATEST = ("latest", "previous")  # states to go on from, the newest first
JOBS = "jobs"  # in the folder of a sweep, beside its runs: what was frozen of each, and how far it has come
OF_A_RUN = (CONFIG, "provenance.json", "metrics.csv", CHECKPOINTS)
RUNS = Path("runs")
NEWEST = "latest"  # what a user calls the newest run
DEPTHS = ("*/", "*/*/", "*/*/*/")  # of runs below a folder
MOST_LISTED = 12
FILES = (CONFIG, "provenance.json", "metrics.csv", "result.json", "train.log")


def run_folder(run: str | Path) -> Path:
    """Give the folder of a run, from itself or one of its checkpoints; nothing is opened."""
    path = resolve_name(run)
    if path.suffix == ".ckpt":
        return path.parent.parent if path.parent.name == CHECKPOINTS else path.parent
    return path


def find_checkpoint(run: str | Path, *names: str) -> Path:
    """Give the file that `run` names: itself, or the first of `names` (such as "best", "latest") that its folder holds.
    Raises CheckpointError when there is none."""
    path = resolve_name(run)
    if path.is_file():
        return path
    if not path.exists():
        raise CheckpointError(f"there is no run or checkpoint at {path}")
    for name in names:
        if (candidate := path / CHECKPOINTS / f"{name}.ckpt").is_file():
            return candidate
    if inside := find_runs(path):
        listed = ", ".join(map(str, inside[:MOST_LISTED])) + (", …" if len(inside) > MOST_LISTED else "")
        raise CheckpointError(f"{path} is a folder of runs; name one of them: {listed}")
    raise CheckpointError(
        f"{path / CHECKPOINTS} holds no {' or '.join(f'{n}.ckpt' for n in names)}; the run has not saved a checkpoint "
        "yet"
    )


def resolve_name(run: str | Path) -> Path:
    """Return the path that a user names; `latest` is the run below runs/ that saved a state last. Raises
    CheckpointError where there is none yet."""
    path = Path(run)
    if str(run) != NEWEST or path.exists():
        return path
    if found := find_runs(RUNS):
        return found[0]
    raise CheckpointError(f"there is no run in {RUNS}/ yet, so run={NEWEST} finds none; name the folder of a run")


def find_runs(folder: Path) -> list[Path]:
    """Find the runs in a folder, or in its folders, that have saved a state: the one that saved last comes first."""
    states = [place for depth in DEPTHS for place in folder.glob(f"{depth}{CHECKPOINTS}")]
    return [state.parent for state in sorted(states, key=lambda place: place.stat().st_mtime, reverse=True)]


def find_model(run: str | Path) -> Path:
    """Return the checkpoint of a run's model: the file that `run` names, or best.ckpt of its folder, or the latest
    state if the run has ended without keeping a best model. Raises CheckpointError if there is none."""
    path = find_checkpoint(run, "best", *LATEST)
    if path.stem in LATEST and path != Path(run) and not has_ended_without_best(run_folder(path)):
        raise CheckpointError(f"{path.parent} holds no best.ckpt; to use another checkpoint, name its file: {path}")
    return path


def has_ended_without_best(folder: Path) -> bool:
    """Whether a run has ended without keeping a best model, such as a run without validation."""
    try:
        result = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(result, dict) and result.get("score", 0) is None


def find_sweep_job(folder: Path) -> Path | None:
    """Give where the sweep keeps the job whose run has this folder; None for a run outside of sweeps."""
    home = folder.parent / JOBS / folder.name
    return home if (home / "job.json").is_file() else None


def find_job_id(folder: Path) -> str | None:
    """Return the id that a sweep gave to the run of this folder; None outside of sweeps, and if its file is damaged."""
    if home := find_sweep_job(folder.absolute()):
        with suppress(OSError, ValueError, TypeError, LookupError):
            return str(json.loads((home / "job.json").read_bytes())["run_id"])
    return None


def has_state(folder: Path) -> bool:
    """Whether a run has saved a state to go on from."""
    return any((folder / CHECKPOINTS / f"{name}.ckpt").is_file() for name in LATEST)


def find_unstarted_job(run: str | Path) -> Path | None:
    """Give where the sweep keeps the job whose folder `run` is, if the run has saved no state to go on from yet."""
    folder = Path(run)
    return None if has_state(folder) else find_sweep_job(folder.absolute())


def read_marks(folder: Path) -> dict[str, Any]:
    """Return what the folder stores about the identity of its run. Raises CheckpointError for a damaged file, and
    for a folder or pipe in its place."""
    path = folder / IDENTITY
    check_files(folder, [IDENTITY])
    try:
        marks = json.loads(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError):
        marks = None
    if not isinstance(marks, dict) or not isinstance(marks.get("config_yaml", []), list):
        raise CheckpointError(f"{path} is damaged; remove it, and resume={folder} writes it again")
    return marks


def write_marks(folder: Path, **marks: Any) -> None:
    """Add to what the folder stores about the identity of its run."""
    write_json(folder / IDENTITY, read_marks(folder) | marks)


def make_new(folder: Path) -> Path:
    """Make the folder of a new run; where one that started in the same second has it, number this one after it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for place in number_folders(folder):
        try:
            place.mkdir()
            return place
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


@contextmanager
def make_folders() -> Iterator[Callable[[Path, bool], Path]]:
    """Yield a function that makes a folder and those above it (True: a new one, numbered as by `make_new`) and returns
    it. Those that are empty in the end are removed again. The function raises StorageError."""
    made: list[Path] = []

    def make(folder: Path, new: bool) -> Path:
        missing = list(takewhile(lambda path: not path.exists(), [folder, *folder.parents]))
        try:
            if new:
                folder = make_new(folder)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {folder}: {error.strerror}; give another hydra.run.dir") from error
        made.extend([*missing[:0:-1], *([folder] if new or missing else [])])
        return folder

    try:
        yield make
    finally:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()


def number_folders(folder: Path) -> Iterator[Path]:
    return chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))


def check_files(folder: Path, names: Iterable[str]) -> None:
    """Raise CheckpointError for anything but a file in the place of a file."""
    for path in (folder / name for name in names):
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise CheckpointError(f"{path} is {kind}, but the run needs a file of this name; remove or rename it")


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run or sweep: it has begun one, or keeps its states."""
    return any((folder / name).is_file() for name in ("provenance.json", "sweep.json")) or has_state(folder)


def check_name(key: str, name: str) -> None:
    """Raise ConfigError for a name that a terminal would not show as it is, or that leads elsewhere than below the
    folder of runs."""
    if CONTROL.search(name):
        raise ConfigError(f"{key}={name} holds a control character; use letters, digits and ._+-")
    if key == "name" and not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ConfigError(f"name={name} is not a valid folder name in runs; use letters, digits and ._+-")


def check_unused(folder: Path) -> None:
    """Raise ConfigError for a folder that holds a run, which a new one would overwrite, or folders of something
    else."""
    check_name("hydra.run.dir", str(folder))
    foreign = next((path for path in list_visible(folder) if path.is_dir()), None)
    if foreign is not None and not any((folder / name).exists() for name in OF_A_RUN):
        raise ConfigError(
            f"hydra.run.dir={shorten_path(folder)} is not the folder of a run, but holds {foreign.name}; name a new "
            "folder"
        )
    if not any((folder / name).exists() for name in OF_A_RUN):
        return
    folder = shorten_path(folder)
    if has_state(folder):
        advice = f"resume it with resume={folder}, or set another hydra.run.dir"
    else:
        advice = "it has saved no checkpoint yet; remove it, or set another hydra.run.dir"
    raise ConfigError(f"{folder} holds a run; {advice}")


def list_visible(folder: Path) -> list[Path]:
    """List what a folder holds, without names that begin with a dot; nothing of one that cannot be read."""
    with suppress(OSError):
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    return []


def free_bytes(folder: Path) -> int:
    """Count the free bytes of the disk that a folder lies on, or will lie on."""
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    return shutil.disk_usage(existing).free


def check_room(folder: Path, needed: int) -> None:
    """Raise StorageError where fewer bytes are free than needed."""
    if (free := free_bytes(folder)) < needed:
        raise StorageError(
            f"{folder} needs room for {needed / MIB:,.0f} MiB of checkpoints, but its disk has {free / MIB:,.0f} MiB "
            "left; free some space, or set another hydra.run.dir"
        )
