"""Handle signals while Lightning runs something other than a fit, for which there is a callback; and where the main
thread cannot, because it waits for another process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from types import FrameType
from typing import Any

from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from pytorch_lightning.utilities.exceptions import SIGTERMException

from vitlab.interruption import AGAIN

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # a scheduler sends the last
ANSWER = 60.0  # seconds without any computation in which the main thread must take notice of a signal; data may be late
NOTICED = threading.Event()  # set when it does


class Signals(_SignalConnector):
    """Lightning's handlers, but for SIGTERM. There Lightning waits inside the handler until the other ranks are in
    theirs; a rank within another collective operation never gets there, and all of them hang. This one passes the
    signal on to the processes that the launcher has started, and leaves at once."""

    passed_on = False

    def _sigterm_notifier_fn(self, signum: int, frame: FrameType | None) -> Any:
        NOTICED.set()
        launcher: Any = self.trainer.strategy.launcher
        if launcher is not None and not self.passed_on:
            self.passed_on = True
            launcher.kill(signum)
        raise SIGTERMException


@contextmanager
def watch_signals(end_others: Callable[[], None]) -> Iterator[None]:
    """Within, end this process, and the others with it, by a signal of `STOPPING` that comes twice, and by one of which
    the main thread takes no notice. Python calls handlers only between two steps of the main thread, and that may be
    within a library, waiting for another process; its C handler writes to a pipe at once, which a thread reads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    NOTICED.clear()
    AGAIN.clear()
    thread = threading.Thread(target=heed, args=(reading, end_others), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        thread.join()
        os.close(reading)


def heed(reading: int, end_others: Callable[[], None]) -> None:
    """Read the numbers of signals until the pipe is closed."""
    came: list[int] = []
    ends = False
    while not ends:
        computed = time.process_time()
        if select([reading], [], [], ANSWER if came else None)[0]:
            number = os.read(reading, 1)
            if not number:
                return
            if number[0] in AGAIN and number[0] in came:
                AGAIN.remove(number[0])
                continue
            ends = number[0] in came
            came += [number[0]] if number[0] in STOPPING else []
        else:
            ends = not NOTICED.is_set() and time.process_time() - computed < ANSWER / 10
    end_others()
    print(f"\n{signal.Signals(came[-1]).name}: stopped at once; no checkpoint was saved", file=sys.stderr, flush=True)
    os._exit(128 + came[-1])


os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a worker's signals are not its parent's
