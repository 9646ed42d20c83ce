"""Check which run a folder and a checkpoint belong to: both store its identity, which is made when the run starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.atomic_files import compute_digest
from vitlab.checkpoints import file
from vitlab.checkpoints.run_folder import (
    CHECKPOINTS,
    CONFIG,
    FILES,
    IDENTITY,
    LATEST,
    check_files,
    find_job_id,
    read_marks,
    run_folder,
)
from vitlab.errors import CheckpointError


@dataclass(frozen=True)
class RunIdentity:
    """Identity of a run, the same in all its starts, on whatever machine: a random `id`, the `name` it started under,
    and the digest of the `config` it started with, without what belongs to a machine."""

    id: str
    name: str
    config: str

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


def parse_identity(facts: Any, origin: Path) -> RunIdentity | None:
    """Return the identity that plain values stand for; None for None, as in a run of an earlier version. Raises
    CheckpointError for a damaged one."""
    if facts is None:
        return None
    if not isinstance(facts, dict) or not all(isinstance(facts.get(key), str) for key in ("id", "name", "config")):
        raise CheckpointError(f"{origin} is damaged: its identity of a run is {facts!r:.80}")
    return RunIdentity(facts["id"], facts["name"], facts["config"])


def read_identity(folder: Path) -> RunIdentity | None:
    """Return the identity of the run that a folder belongs to; None if the folder stores none. Raises
    CheckpointError."""
    return parse_identity(read_marks(folder).get("run"), folder / IDENTITY)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint. Raises CheckpointError if it is damaged or lies in another run's folder."""
    checkpoint = file.read(path)
    check_owner(path, checkpoint)
    return checkpoint


def check_owner(path: Path, checkpoint: dict[str, Any]) -> None:
    """Raise CheckpointError if the checkpoint lies in another run's folder."""
    check_identity(path, parse_identity(checkpoint["run"].get("identity"), path), read_identity(run_folder(path)))


def check_folder(folder: Path, own: RunIdentity) -> None:
    """Raise CheckpointError unless the folder and its checkpoints belong to this run, its files are files, and
    config.yaml is as the run wrote it."""
    states = [f"{CHECKPOINTS}/{name}.ckpt" for name in ("best", *LATEST)]
    check_files(folder, (*FILES, *states))
    there = read_identity(folder)
    if there is not None and there.id != own.id:
        raise CheckpointError(f"{folder} belongs to the run {there}, not to the run {own}")
    if (job := find_job_id(folder)) not in (None, own.id):
        raise CheckpointError(f"{folder} holds the run {own}, but the sweep's job of this name is another run, {job}")
    for path in map(folder.joinpath, states):
        check_identity(path, parse_identity(file.peek(path).get("identity"), path), own)
    if is_edited(folder):
        raise CheckpointError(
            f"{folder / CONFIG} was changed after the run wrote it, but no command reads it; remove it, and type the "
            f"change, such as resume={folder} optimizer.lr=1e-4"
        )


def check_identity(path: Path, found: RunIdentity | None, own: RunIdentity | None) -> None:
    """Raise CheckpointError if a checkpoint belongs to another run than its folder; one without identity may."""
    if found is not None and own is not None and found != own:
        raise CheckpointError(
            f"{path} belongs to the run {found}, but lies in the folder of the run {own}; move it to another folder "
            "to open it"
        )


def is_edited(folder: Path) -> bool:
    """Whether config.yaml is not as the run wrote it."""
    path, known = folder / CONFIG, read_marks(folder).get("config_yaml")
    return known is not None and path.is_file() and compute_digest(path.read_bytes()) not in known
