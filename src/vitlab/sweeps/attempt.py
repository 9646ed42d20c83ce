"""Record one start of a job on disk, as its supervisor sees it: started, alive, ended."""

import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

from vitlab.checkpoints.run_lock import is_in_use, leave, read_holder, take
from vitlab.errors import CheckpointError, format_error
from vitlab.reports.run import read_result
from vitlab.sweeps.folder import HEARTBEAT, LOG, State, SweepFolder

STOPS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU}
SUPERVISED = "VITLAB_SUPERVISED"  # in the environment of a job that a sweep has started
LONGEST_REASON = 300
LOG_TAIL = 65536  # bytes at the end of a log that are searched for its last line


class Attempt:
    """Starts a job by `command`, to which `begin` adds the run to resume.

    A job has one supervisor at a time, on any machine. If its run outlived an earlier supervisor, `acquire` returns
    False until that run has ended.
    """

    def __init__(self, sweep: SweepFolder, name: str, command: Sequence[str]):
        self.sweep = sweep
        self.name = name
        self.command = list(command)
        self.folder = (sweep.path / name).absolute()
        self.home = sweep.home(name)
        self.log = self.home / LOG
        self.log_start = 0  # bytes of the log before this start
        self.state = State()

    def acquire(self) -> bool:
        """Lock the job; False while another supervisor or its run uses it."""
        if self.sweep.state(self.name).is_supervised:
            return False
        try:
            take(self.home, break_lock=True)  # its supervisor is gone
        except CheckpointError:
            return False
        return not is_in_use(self.folder)

    def begin(self) -> list[str] | None:
        """Record the start and return the command to run; None if an earlier start succeeded and was not recorded."""
        before = self.sweep.state(self.name).refresh()
        if (result := read_result(self.folder)) is not None:
            self._record(replace(before, status="done", score=result.get("score"), reason=None))
            leave(self.home)
            return None
        now = time.time()
        self.log_start = self.log.stat().st_size if self.log.is_file() else 0
        self._record(
            replace(
                before,
                status="running",
                attempts=before.attempts + 1,
                host=socket.gethostname(),
                pid=os.getpid(),
                started=now,
                heartbeat=now,
                exit_status=None,
                reason=None,
            )
        )
        broken = read_holder(self.folder).get("host", self.state.host) != self.state.host
        return [*self.command, f"resume={self.folder}", *(["break_lock=true"] if broken else [])]

    def write_heartbeat(self) -> None:
        """Record that the supervisor is alive, if the last heartbeat is some seconds old."""
        assert self.state.heartbeat is not None
        if time.time() - self.state.heartbeat >= HEARTBEAT:
            self._record(replace(self.state, heartbeat=time.time()))

    def end(self, status: int) -> None:
        """Record how the job ended. `status` is its exit status, or the negative number of the signal that ended it."""
        assert self.state.started is not None
        number = -status if status < 0 else status - 128
        result = read_result(self.folder)
        after = replace(
            self.state,
            seconds=round(self.state.seconds + time.time() - self.state.started, 1),
            exit_status=128 + number if status < 0 else status,
        )
        if result is not None:
            after = replace(after, status="done", score=result.get("score"))
        elif number in STOPS:
            after = replace(after, status="killed", reason=signal.Signals(number).name)
        else:
            after = replace(after, status="failed", failures=after.failures + 1, reason=self._reason(number))
        self._record(after)
        leave(self.home)

    def _record(self, state: State) -> None:
        self.state = state
        self.sweep.write_state(self.name, state)

    def _reason(self, number: int) -> str:
        """Return the last line in the log of this start: an error message, or the end of a traceback."""
        if number > 0:
            return f"ended by {signal.Signals(number).name}" if number in list(signal.Signals) else f"status {number}"
        with open(self.log, "rb") as log:
            log.seek(max(self.log_start, self.log.stat().st_size - LOG_TAIL))
            lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        return format_error(last)[:LONGEST_REASON]


def read_exit_status(pid: int) -> int | None:
    """Return the exit status of a child of this process, or the negative number of its signal; None while it runs.

    The child stays a zombie until somebody waits for it, so that its process id is not reused.
    """
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
