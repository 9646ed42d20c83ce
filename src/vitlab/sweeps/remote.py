"""Supervise one job on whatever machine an engine starts it; the machine must see the sweep's folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_lock import leave
from vitlab.sweeps.attempt import SUPERVISED, Attempt, read_exit_status
from vitlab.sweeps.folder import STOP, SweepFolder

POLL_SECONDS = 0.5  # between two checks of the job
GRACE_SECONDS = 60.0  # for a job to save its state and end, before it is killed
SCHEDULER_VARIABLES = ("SLURM_", "SUBMITIT_")  # they describe the supervisor's process, not the job's
SRC = Path(__file__).resolve().parents[2]


class Supervisor:
    """When called, runs a job until it ends, or until the sweeper writes the file `stop` beside its state.

    The job runs in the folder where the sweep was started, with `threads` threads, in the machine's environment and
    `environment`.
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
        while not self.attempt.acquire():
            if stop.exists():
                return
            time.sleep(POLL_SECONDS)
        command = None if stop.exists() else self.attempt.begin()
        if command is None:
            leave(self.attempt.home)
            return
        self.process = self._start(self.attempt, command)
        while (status := read_exit_status(self.process.pid)) is None:
            self.attempt.write_heartbeat()
            if stop.exists():
                self._stop(self.process.pid)
            time.sleep(POLL_SECONDS)
        self.attempt.end(status)
        self.process.wait()

    def checkpoint(self) -> Any:
        """End the job with its state saved, and return what submitit is to requeue. submitit calls this in a signal
        handler, when the job is preempted or reaches its time limit."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None and self.attempt is not None:
            self.attempt.end(self._stop(self.process.pid))
        self.attempt = self.process = None  # the requeued copy starts its own
        return DelayedSubmission(self)

    def _start(self, attempt: Attempt, command: list[str]) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith(SCHEDULER_VARIABLES)}
        environment |= {SUPERVISED: "1", "OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": prepend_src(environment)}
        environment |= self.environment
        with open(attempt.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "vitlab.sweeps.child", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def _stop(self, pid: int) -> int:
        """Ask the job to end, wait until it has, and return its exit status. Takes no lock of Popen's, since this may
        run in a signal handler."""
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while (status := read_exit_status(pid)) is None:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        return status


def prepend_src(environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of an environment, with this checkout in front."""
    before = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SRC), *(path for path in before if path and path != str(SRC))])
