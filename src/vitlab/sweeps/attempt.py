"""Start a job once, as its supervisor sees it: taken, alive, ended, each recorded on disk."""

import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

from vitlab.checkpoints.run_lock import holder_of, in_use, leave, take
from vitlab.errors import CheckpointError, in_one_line
from vitlab.reports.run import result_of
from vitlab.sweeps.folder import HEARTBEAT, LOG, State, SweepFolder

STOPS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU}
SUPERVISED = "VITLAB_SUPERVISED"  # in the environment of a job that a sweep has started
LONGEST_REASON = 300
LAST_WORDS = 65536  # bytes of a log in which its last line is looked for


class Attempt:
    """A job that a supervisor starts by `command`, extended by the run to resume. A job has one supervisor at a time,
    on whatever machine; a run that outlived its supervisor is waited for."""

    def __init__(self, sweep: SweepFolder, name: str, command: Sequence[str]):
        self.sweep = sweep
        self.name = name
        self.command = list(command)
        self.folder = (sweep.path / name).absolute()
        self.home = sweep.home(name)
        self.log = self.home / LOG
        self.said = 0  # bytes of the log before this start
        self.state = State()

    def ready(self) -> bool:
        """Take the job, unless somebody is at work on it."""
        if self.sweep.state(self.name).supervised:
            return False
        try:
            take(self.home, break_lock=True)  # its supervisor gives no sign of life
        except CheckpointError:
            return False
        return not in_use(self.folder)

    def begin(self) -> list[str] | None:
        """Record the start, and give the words of its command; None where an earlier start ended well and nobody
        recorded it."""
        before = self.sweep.state(self.name).seen()
        if (result := result_of(self.folder)) is not None:
            self._note(replace(before, status="done", score=result.get("score"), reason=None))
            leave(self.home)
            return None
        now = time.time()
        self.said = self.log.stat().st_size if self.log.is_file() else 0
        self._note(
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
        broken = holder_of(self.folder).get("host", self.state.host) != self.state.host
        return [*self.command, f"resume={self.folder}", *(["break_lock=true"] if broken else [])]

    def beat(self) -> None:
        """Record a sign of life if the last one is some seconds old."""
        assert self.state.heartbeat is not None
        if time.time() - self.state.heartbeat >= HEARTBEAT:
            self._note(replace(self.state, heartbeat=time.time()))

    def end(self, status: int) -> None:
        """Record how it ended: the exit status, or a signal as its negative number."""
        assert self.state.started is not None
        number = -status if status < 0 else status - 128
        result = result_of(self.folder)
        ended = replace(
            self.state,
            seconds=round(self.state.seconds + time.time() - self.state.started, 1),
            exit_status=128 + number if status < 0 else status,
        )
        if result is not None:
            ended = replace(ended, status="done", score=result.get("score"))
        elif number in STOPS:
            ended = replace(ended, status="killed", reason=signal.Signals(number).name)
        else:
            ended = replace(ended, status="failed", failures=ended.failures + 1, reason=self._reason(number))
        self._note(ended)
        leave(self.home)

    def leave(self) -> None:
        """Release a job that was not begun."""
        leave(self.home)

    def _note(self, state: State) -> None:
        self.state = state
        self.sweep.write_state(self.name, state)

    def _reason(self, number: int) -> str:
        """Give the last line that this start wrote: a refusal, or the end of a traceback."""
        if number > 0:
            return f"ended by {signal.Signals(number).name}" if number in list(signal.Signals) else f"status {number}"
        with open(self.log, "rb") as log:
            log.seek(max(self.said, self.log.stat().st_size - LAST_WORDS))
            lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return in_one_line(last)[:LONGEST_REASON]


def ended(pid: int) -> int | None:
    """Tell how a child of this process has ended: its exit status, or a signal as its negative number; None while it
    runs. The child stays a zombie, so that its number is not reused before somebody waits for it."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
