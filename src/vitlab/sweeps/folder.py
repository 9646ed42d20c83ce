"""The folder of a sweep: what was frozen when it started, and how far each of its jobs has come.

sweep.json                what was asked for; written last, so that a sweep that has it is whole
jobs/JOB/job.json         a job: its number, overrides and choices; config.yaml beside it is its resolved config
jobs/JOB/state.json       how far it has come, written by its supervisor alone; console.log is what it said
jobs/JOB/engine           what it was last handed to, written by the sweeper
JOB/                      its run, as any other
results.csv, seeds.csv    what the jobs came to
"""

import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vitlab.atomic_files import alive, write_json, write_whole
from vitlab.checkpoints.run_folder import CHECKPOINTS, JOBS, LATEST
from vitlab.errors import CheckpointError
from vitlab.reports.run import RESULT
from vitlab.sweeps.stored import content, damaged, stored

FORMAT = 1
SWEEP, JOB, CONFIG, STATE, LOG, STOP = "sweep.json", "job.json", "config.yaml", "state.json", "console.log", "stop"
ENGINE = "engine"
JOURNAL = "study.journal"
LEFT = (  # what a start may leave that was killed before the sweep was whole, beside names that begin with a dot
    *(JOBS, f"{JOBS}/*/", f"{JOBS}/*/{CONFIG}", f"{JOBS}/*/{JOB}"),
    *(JOURNAL, f"{JOURNAL}.lock", "nursery.log"),
)
HEARTBEAT = 10.0  # seconds between two signs of life of a job's supervisor
LOST = 60.0  # seconds after which one that gives none is gone

Status = Literal["waiting", "running", "done", "failed", "killed", "lost", "pruned"]
ENDED = ("done", "pruned")  # never run again


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it was frozen: `name` is its run's folder in the sweep's, `monitor` the metric of its score."""

    number: int
    name: str
    overrides: list[str]
    choices: dict[str, Any]
    monitor: str
    run_id: str

    @property
    def given(self) -> dict[str, str]:
        """The overrides by their keys."""
        parts = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in parts}


@dataclass(frozen=True, kw_only=True)
class State:
    """How far a job has come: waiting, running, done, failed, killed, lost (its supervisor is gone) or pruned.

    `reason` says in one line why a job failed or was pruned, or by which signal it was killed.
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
    def supervised(self) -> bool:
        """Whether a supervisor is working on it, as far as can be told from here."""
        if self.status != "running" or self.heartbeat is None:
            return False
        if self.host == socket.gethostname() and not alive(self.pid or 0):
            return False
        return time.time() - self.heartbeat < LOST

    def lost(self) -> "State":
        """Give the state of a running job whose supervisor is gone; its time ends with the last sign of life."""
        lived = max(0.0, (self.heartbeat or 0.0) - (self.started or 0.0))
        seconds = round(self.seconds + lived, 1)
        return replace(self, status="lost", seconds=seconds, started=None, reason="its supervisor is gone")

    def seen(self) -> "State":
        """Give the state to show: a running job may turn out to be lost."""
        return self.lost() if self.status == "running" and not self.supervised else self


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder, which another process of the same sweep may be writing to."""

    path: Path

    @property
    def frozen(self) -> bool:
        return (self.path / SWEEP).is_file()

    def home(self, name: str) -> Path:
        """Give the folder of a job's state."""
        return self.path / JOBS / name

    def request(self) -> dict[str, Any]:
        """Read what was asked for when the sweep was frozen. Raises CheckpointError for a folder of another version,
        and a damaged one."""
        request = content(self.path / SWEEP)
        if request.get("format", FORMAT) != FORMAT:
            raise CheckpointError(
                f"{self.path} is a sweep in format {request['format']}, and this version of vitlab reads format "
                f"{FORMAT}: give another sweep=NAME"
            )
        kinds = {"config": dict, "same": list} | ({"search": dict} if "search" in request else {"jobs": list})
        for key, kind in kinds.items():
            if not isinstance(request.get(key), kind):
                raise damaged(self.path / SWEEP, how=f", {key} is {request.get(key)!r}")
        return request

    def scales(self) -> dict[str, bool]:
        """Give the keys of numbers that a search varies, and whether their scale is logarithmic."""
        axes = self.request().get("search", {}).get("axes", ())
        return {axis["name"].lstrip("+"): axis["log"] for axis in axes if "log" in axis}

    def check_new(self) -> None:
        """Raise CheckpointError for a folder without a sweep that holds anything but what `clear` may remove: also for
        a sweep whose jobs have begun, and one from before sweeps could be resumed."""
        if self.frozen:
            return
        if (self.path / "multirun.yaml").is_file():
            raise CheckpointError(
                f"{self.path} is a sweep of an older version of vitlab, which cannot be resumed: give another "
                "sweep=NAME"
            )
        if list(self.path.glob(f"{JOBS}/*/{STATE}")):
            raise CheckpointError(
                f"{self.path / SWEEP} is gone, and jobs of this sweep have begun: give another sweep=NAME"
            )
        left = {path for pattern in LEFT for path in self.path.glob(pattern)}
        for path in self.path.rglob("*"):
            inner = path.relative_to(self.path)
            if path not in left and not any(part.startswith(".") for part in inner.parts):
                raise CheckpointError(f"{self.path} is no sweep, and holds {inner}: give another sweep=NAME")

    def clear(self) -> None:
        """Remove what a start left behind that was killed before the sweep was whole."""
        shutil.rmtree(self.path / JOBS, ignore_errors=True)
        (self.path / JOURNAL).unlink(missing_ok=True)

    def add(self, job: Job, config: bytes) -> None:
        """Freeze a job."""
        home = self.home(job.name)
        home.mkdir(parents=True, exist_ok=True)
        write_whole(home / CONFIG, config)
        write_json(home / JOB, asdict(job))

    def freeze(self, request: dict[str, Any]) -> None:
        """Mark the sweep as complete."""
        write_json(self.path / SWEEP, {"format": FORMAT, **request})

    def jobs(self) -> list[Job]:
        """Read all jobs, in the order of their numbers. Raises CheckpointError for a damaged one."""
        return sorted(self._jobs(), key=lambda job: job.number)

    def _jobs(self) -> Iterator[Job]:
        for path in (self.path / JOBS).glob(f"*/{JOB}"):
            yield stored(path, Job)

    def state(self, name: str) -> State:
        """Read how far a job has come. Raises CheckpointError for a damaged file."""
        try:
            return stored(self.home(name) / STATE, State, "remove it, and the job goes on from what its run has saved")
        except FileNotFoundError:
            return State()

    def has_result(self, name: str) -> bool:
        """Whether a job's run has ended well."""
        return (self.path / name / RESULT).is_file()

    def saved_at(self, name: str) -> int | None:
        """Give when a job's run last saved a state to go on from; None where there is none."""
        states = [self.path / name / CHECKPOINTS / f"{state}.ckpt" for state in LATEST]
        return max((state.stat().st_mtime_ns for state in states if state.is_file()), default=None)

    def states(self) -> dict[str, State]:
        """Read how far each job has come, by name, as it is to be shown."""
        return {job.name: self.state(job.name).seen() for job in self.jobs()}

    def engine(self, name: str) -> str | None:
        """Read which kind of engine a job was last handed to."""
        path = self.home(name) / ENGINE
        return path.read_text() if path.is_file() else None

    def note_engine(self, name: str, engine: str) -> None:
        write_whole(self.home(name) / ENGINE, engine.encode())

    def write_state(self, name: str, state: State) -> None:
        write_json(self.home(name) / STATE, asdict(state))
