"""Start the processes of a run on one machine; when one of them is gone, none waits for it forever."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning_fabric.utilities.distributed import _set_num_threads_if_needed
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from vitlab.distributed.ending import GRACE, WATCH, leave
from vitlab.distributed.environment import STARTED_BY
from vitlab.distributed.lost_process import make_lost_error
from vitlab.distributed.presence import CURRENT, Presence
from vitlab.distributed.signals import NOTICED, STOPPING, watch_signals
from vitlab.errors import DistributedError

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
        _set_num_threads_if_needed(num_processes=self.num_processes)
        return function(*args, **kwargs)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Wait, within, for another process no longer than needed. Raises DistributedError where another one
        is lost, with the status of one that has refused to go on; those that are left, as stopped ones, are ended then.
        A signal ends this process even while it waits for another one."""
        with watch_signals(self.end_others):
            try:
                yield
            except RuntimeError as error:
                refusal = make_lost_error(error, self._find_lost)
                if refusal is None:
                    raise
                refusal.status = self._find_reason()
                self.end_others()
                raise refusal from error

    def start_presence(self) -> None:
        """Give signs to the other processes, from when all have come together; a launcher's give them already."""
        self.presence = self.presence or next(iter(CURRENT), None) or Presence.begin()
        if self.num_nodes > 1 and self.presence is not None and not CURRENT:  # started by hand, on each machine
            CURRENT.append(self.presence)
            self.presence.watch()

    def _find_lost(self) -> list[str]:
        return self.presence.find_lost() if self.presence else []

    def end_others(self) -> None:
        """Kill the processes that this one has started, also those that are stopped."""
        self.kill(signal.SIGKILL)

    def _find_reason(self) -> int:
        """Give the exit status of another process that refused to go on or was asked to stop, for which we wait some
        seconds; else that of a lost process."""
        for _ in range(round(LAST_WORDS / WATCH)):
            if self.procs and not self._find_failed():
                time.sleep(WATCH)
        told = self.presence.status if self.presence else DistributedError.status
        return next((status for status in self._find_failed() if status != DistributedError.status), told)

    def _find_failed(self) -> list[int]:
        """Give the exit status of each process that has failed; one that a signal has ended is lost, unless the signal
        asks processes to stop."""
        codes = [process.returncode for process in self.procs if process.poll()]
        lost = DistributedError.status
        return [code if code > 0 else 128 - code if -code in STOPPING else lost for code in codes]

    def _watch_others(self) -> None:
        while not self._find_failed():
            if all(process.returncode == 0 for process in self.procs):
                return
            time.sleep(WATCH)
        if not self.finishing.wait(GRACE):
            lost = self._find_lost()
            self.end_others()
            leave(self._find_reason(), lost)


def stop_waiting_for_others(trainer: Any) -> None:
    """Let this process finish alone: from now on it no longer matters whether others end."""
    NOTICED.set()
    if isinstance(trainer.strategy.launcher, Launcher):
        trainer.strategy.launcher.finishing.set()
    for presence in CURRENT:
        presence.finishing.set()
