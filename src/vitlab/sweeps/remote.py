"""Supervise one job wherever an engine puts it: on any machine that sees the sweep's folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from vitlab.sweeps.attempt import SUPERVISED, Attempt, ended
from vitlab.sweeps.folder import STOP, SweepFolder

LOOK = 0.5  # seconds between two looks at the job
GRACE = 60.0  # seconds that a job has to save its state and end
OF_SLURM = ("SLURM_", "SUBMITIT_")  # what tells a process of the supervisor's own place, which is no place of a job's
SRC = Path(__file__).resolve().parents[2]


class Supervisor:
    """Called, it runs a job to its end, or until the sweeper puts the file `stop` beside its state.

    The job runs in the folder in which the sweep was started, with that many `threads`, and `environment` on top of the
    machine's own.
    """

    def __init__(self, sweep: Path, name: str, command: list[str], threads: int, environment: dict[str, str]):
        self.sweep, self.name, self.command = str(sweep), name, command
        self.threads, self.environment = threads, environment
        self.folder = os.getcwd()
        self.attempt: Attempt | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        sweep = SweepFolder(Path(self.sweep))
        stop = sweep.home(self.name) / STOP
        self.attempt = Attempt(sweep, self.name, self.command)
        while not self.attempt.ready():
            if stop.exists():
                return
            time.sleep(LOOK)
        words = None if stop.exists() else self.attempt.begin()
        if words is None:
            self.attempt.leave()
            return
        self.process = self._started(self.attempt, words)
        while (status := ended(self.process.pid)) is None:
            self.attempt.beat()
            if stop.exists():
                self._stop(self.process.pid)
            time.sleep(LOOK)
        self.attempt.end(status)
        self.process.wait()

    def checkpoint(self) -> Any:
        """End the job with its state saved, because others need the machine; return who goes on with it. submitit calls
        this within a signal handler, before it requeues the job."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None and self.attempt is not None:
            self.attempt.end(self._stop(self.process.pid))
        self.attempt = self.process = None  # which go on nowhere else
        return DelayedSubmission(self)

    def _started(self, attempt: Attempt, words: list[str]) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OF_SLURM)}
        environment |= {SUPERVISED: "1", "OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": with_src(environment)}
        environment |= self.environment
        with open(attempt.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "vitlab.sweeps.child", str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def _stop(self, pid: int) -> int:
        """Ask the job to end, see that it does, and return its exit status. Waits for no lock of Popen's, since this
        may run within a signal handler."""
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while (status := ended(pid)) is None:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            time.sleep(LOOK)
        return status


def with_src(environment: dict[str, str]) -> str:
    """Put the checkout into PYTHONPATH."""
    before = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SRC), *(path for path in before if path and path != str(SRC))])
