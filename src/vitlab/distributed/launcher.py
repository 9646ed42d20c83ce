"""Start the processes of a run on one machine; when one of them is gone, none waits for it forever."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from lightning_fabric.utilities.distributed import _set_num_threads_if_needed
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from vitlab.distributed.environment import STARTED_BY, started_by_us
from vitlab.distributed.lost_process import ENDED, in_brackets, lost_process
from vitlab.distributed.presence import Presence
from vitlab.errors import DistributedError

WATCH = 0.5  # seconds between two looks at the other processes
GRACE = 30.0  # seconds that a process has to see for itself that another one is gone
LAST_WORDS = 20.0  # seconds that a process which has refused to go on may take to end


class Launcher(_SubprocessScriptLauncher):
    """Lightning's launcher with another end. When another process fails, Lightning kills the first one, even while it
    is saving or closing its loggers because of that failure. Here the first process gets time to notice by itself; if
    it does not, and `finishing` is not set, it ends with a sentence. The others do not outlive the first."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.finishing = threading.Event()
        self.presence: Presence | None = None

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Call the function in this process; the first time, start those that call it beside this one."""
        environment = self.cluster_environment
        environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not environment.creates_processes_externally:
            os.environ[STARTED_BY] = str(os.getpid())
            self._call_children_scripts()
            threading.Thread(target=self._watch_others, daemon=True).start()
        elif started_by_us():
            threading.Thread(target=self._end_with, args=(os.getppid(),), daemon=True).start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            refusal = lost_process(error, self._lost)
            if refusal is None:
                raise
            refusal.status = self._reason_of_others()
            raise refusal from error

    def met(self) -> None:
        """Give signs to the other processes, from when all have come together."""
        self.presence = self.presence or Presence.begin()

    def _lost(self) -> list[str]:
        return self.presence.lost() if self.presence else []

    def _failed(self) -> int | None:
        """Give the exit status of another process that has failed; None while there is none."""
        return next((process.returncode for process in self.procs if process.poll()), None)

    def _reason_of_others(self) -> int:
        """Give the exit status of another process that refused to go on, for which we wait some seconds; else that of a
        lost process."""
        for _ in range(round(LAST_WORDS / WATCH)):
            if self.procs and self._failed() is None:
                time.sleep(WATCH)
        return max(self._failed() or 0, 0) or DistributedError.status

    def _watch_others(self) -> None:
        while self._failed() is None:
            if all(process.returncode == 0 for process in self.procs):
                return
            time.sleep(WATCH)
        if not self.finishing.wait(GRACE):
            lost = self._lost()
            self.kill(signal.SIGKILL)
            leave(self._reason_of_others(), lost)

    def _end_with(self, parent: int) -> None:
        """End this process when the one that has started it is gone."""
        while os.getppid() == parent:
            time.sleep(WATCH)
        time.sleep(GRACE)
        leave(DistributedError.status, self._lost())


def need_no_others(trainer: Any) -> None:
    """From now on, let this process work alone: it no longer matters whether others end."""
    if isinstance(trainer.strategy.launcher, Launcher):
        trainer.strategy.launcher.finishing.set()


def leave(status: int, lost: list[str]) -> None:
    """End the process from another thread than the one that waits in a collective operation."""
    print(f"\nDistributedError: {ENDED.format(in_brackets(lost))}", file=sys.stderr, flush=True)
    os._exit(status)
