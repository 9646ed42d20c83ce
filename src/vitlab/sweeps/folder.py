"""The folder of a sweep: its request and jobs, saved when it starts, and the state of each job.

sweep.json                the request; written last, so that a sweep with this file is complete
jobs/JOB/job.json         a job: its number, overrides and choices; config.yaml beside it is its resolved config
jobs/JOB/state.json       its state, written by its supervisor alone; console.log has its output
jobs/JOB/engine           the engine it was last submitted to, written by the sweeper
JOB/                      its run, as any other
results.csv, seeds.csv    the outcomes of the jobs
"""

import shutil
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vitlab.atomic_files import is_alive, write_json, write_whole
from vitlab.checkpoints.run_folder import CHECKPOINTS, JOBS, LATEST
from vitlab.errors import CheckpointError
from vitlab.reports.run import RESULT
from vitlab.sweeps.stored import read_json

FORMAT = 1
SWEEP, JOB, CONFIG, STATE, LOG, STOP = "sweep.json", "job.json", "config.yaml", "state.json", "console.log", "stop"
ENGINE = "engine"
JOURNAL = "study.journal"
SERVER_LOG = "fork_server.log"
LEFTOVERS = (  # files of a start that was killed before it wrote sweep.json; names that begin with a dot are others
    *(JOBS, f"{JOBS}/*/", f"{JOBS}/*/{CONFIG}", f"{JOBS}/*/{JOB}"),
    *(JOURNAL, f"{JOURNAL}.lock", SERVER_LOG),
)
HEARTBEAT = 10.0  # seconds between two heartbeats of a job's supervisor
LOST = 60.0  # seconds without a heartbeat after which a supervisor counts as gone

Status = Literal["waiting", "running", "done", "failed", "killed", "lost", "pruned"]
ENDED = ("done", "pruned")  # never run again


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a sweep: `name` is its run's folder below the sweep's, `monitor` the metric of its score."""

    number: int
    name: str
    overrides: list[str]
    choices: dict[str, Any]
    monitor: str
    run_id: str

    @property
    def values(self) -> dict[str, str]:
        """The values that its overrides set, by key."""
        parts = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in parts}


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a job: waiting, running, done, failed, killed, lost (its supervisor is gone) or pruned.

    `reason` says in one line why a job failed or was pruned, or which signal killed it.
    """

    status: Status = "waiting"
    attempts: int = 0
    failures: int = 0
    host: str | None = None
    pid: int | None = None
    started: float | None = None
    heartbeat: float | None = None
    seconds: float = 0.0
    score: float | None = None
    exit_status: int | None = None
    reason: str | None = None

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor seems to be running it."""
        if self.status != "running" or self.heartbeat is None:
            return False
        if self.host == socket.gethostname() and not is_alive(self.pid or 0):
            return False
        return time.time() - self.heartbeat < LOST

    def mark_lost(self) -> "State":
        """Return the state of a running job whose supervisor is gone; its time ends with the last heartbeat."""
        lived = max(0.0, (self.heartbeat or 0.0) - (self.started or 0.0))
        seconds = round(self.seconds + lived, 1)
        return replace(self, status="lost", seconds=seconds, started=None, reason="its supervisor is gone")

    def refresh(self) -> "State":
        """Return this state, or the state lost for a running job without a supervisor."""
        return self.mark_lost() if self.status == "running" and not self.is_supervised else self


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a sweep was asked to do: a grid has `jobs`, each by the overrides that vary; a search has `search` instead.

    `config` is the config that all jobs start from, `same` the overrides that they share.
    """

    config: dict[str, Any]
    same: list[str]
    jobs: list[list[str]] | None = None
    search: dict[str, Any] | None = None


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder; other processes of the same sweep may write to it."""

    path: Path

    @property
    def is_saved(self) -> bool:
        """Whether the sweep and its jobs have been saved completely."""
        return (self.path / SWEEP).is_file()

    def home(self, name: str) -> Path:
        """Return the folder of a job's state."""
        return self.path / JOBS / name

    def request(self) -> Request:
        """Read what the sweep was asked to do. Raises CheckpointError for a damaged file, or one of another format."""
        path = self.path / SWEEP
        if (found := read_json(path, dict[str, Any]).get("format")) != FORMAT:
            raise CheckpointError(
                f"{path} has format {found}, but this version of vitlab reads format {FORMAT}: give another sweep=NAME"
            )
        request = read_json(path, Request)
        if (request.jobs is None) == (request.search is None):
            raise CheckpointError(f"{path} is damaged: it needs either jobs or search; give another sweep=NAME")
        return request

    def scales(self) -> dict[str, bool]:
        """Return the numeric keys that a search varies, and whether their scale is logarithmic."""
        axes = (self.request().search or {}).get("axes", ())
        return {axis["name"].lstrip("+"): axis["log"] for axis in axes if "log" in axis}

    def check_new(self) -> None:
        """Raise CheckpointError if the folder has no complete sweep, but other files than `clear` may remove."""
        if self.is_saved:
            return
        if (self.path / "multirun.yaml").is_file():
            raise CheckpointError(
                f"{self.path} is a sweep of an older version of vitlab and cannot be resumed: give another sweep=NAME"
            )
        if list(self.path.glob(f"{JOBS}/*/{STATE}")):
            raise CheckpointError(
                f"{self.path / SWEEP} is missing, but jobs of this sweep have started: give another sweep=NAME"
            )
        left = {path for pattern in LEFTOVERS for path in self.path.glob(pattern)}
        for path in self.path.rglob("*"):
            inner = path.relative_to(self.path)
            if path not in left and not any(part.startswith(".") for part in inner.parts):
                raise CheckpointError(f"{self.path} is not a sweep, but holds {inner}; give another sweep=NAME")

    def clear(self) -> None:
        """Remove the files of a start that was killed before the sweep was complete."""
        shutil.rmtree(self.path / JOBS, ignore_errors=True)
        (self.path / JOURNAL).unlink(missing_ok=True)

    def add(self, job: Job, config: bytes) -> None:
        """Save a job."""
        home = self.home(job.name)
        home.mkdir(parents=True, exist_ok=True)
        write_whole(home / CONFIG, config)
        write_json(home / JOB, asdict(job))

    def save(self, request: Request) -> None:
        """Mark the sweep as complete."""
        content = {key: value for key, value in asdict(request).items() if value is not None}
        write_json(self.path / SWEEP, {"format": FORMAT, **content})

    def jobs(self) -> list[Job]:
        """Read all jobs, ordered by number. Raises CheckpointError for a damaged file."""
        jobs = (read_json(path, Job) for path in (self.path / JOBS).glob(f"*/{JOB}"))
        return sorted(jobs, key=lambda job: job.number)

    def state(self, name: str) -> State:
        """Read the state of a job. Raises CheckpointError for a damaged file."""
        try:
            return read_json(self.home(name) / STATE, State, "remove it, and the job resumes from its last checkpoint")
        except FileNotFoundError:
            return State()

    def has_result(self, name: str) -> bool:
        """Whether a job's run has succeeded."""
        return (self.path / name / RESULT).is_file()

    def find_save_time(self, name: str) -> int | None:
        """Return when a job's run last saved a checkpoint, in ns; None if it has none."""
        states = [self.path / name / CHECKPOINTS / f"{state}.ckpt" for state in LATEST]
        return max((state.stat().st_mtime_ns for state in states if state.is_file()), default=None)

    def states(self) -> dict[str, State]:
        """Read the current state of each job, by name."""
        return {job.name: self.state(job.name).refresh() for job in self.jobs()}

    def engine(self, name: str) -> str | None:
        """Read which engine a job was last submitted to."""
        path = self.home(name) / ENGINE
        return path.read_text() if path.is_file() else None

    def write_engine(self, name: str, engine: str) -> None:
        write_whole(self.home(name) / ENGINE, engine.encode())

    def write_state(self, name: str, state: State) -> None:
        write_json(self.home(name) / STATE, asdict(state))
