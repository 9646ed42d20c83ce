"""End a process that waits for another one of its run, which is gone."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from vitlab.errors import DistributedError

WATCH = 0.5  # seconds between two looks at other processes
GRACE = 30.0  # seconds that a process has to see for itself that another one is gone
HANDLERS: list[Any] = []  # that C calls, without keeping them
ENDED = (
    "another process of this run has ended{}; what it said stands above, unless it was killed: go on with resume=<the "
    "run's folder>"
)
NO_ANSWER = (
    "another process of this run did not answer{} within the minutes of trainer.strategy.timeout_minutes: it hangs, is "
    "slow, or its machine cannot be reached; look there, and go on with resume=<the run's folder>"
)


def end_with(first: int) -> None:
    """End this process when the one that has started it is gone."""
    while os.getppid() == first:
        time.sleep(WATCH)
    time.sleep(GRACE)
    leave(DistributedError.status, ["rank 0"])


def leave(status: int, lost: list[str], sentence: str = ENDED) -> None:
    """End the process from another thread than the one that waits in a collective operation."""
    print(f"\nDistributedError: {sentence.format(format_in_brackets(lost))}", file=sys.stderr, flush=True)
    os._exit(status)


def end_instead_of_abort(end: Callable[[], None]) -> None:
    """Call `end` where a library aborts this process, as NCCL's watchdog does, in its own thread, when another process
    is lost: no exception reaches Python then. If it returns, the process aborts after all."""
    owner = os.getpid()  # a worker that is forked from it has other reasons to abort

    def handle(number: int) -> None:
        if os.getpid() == owner:
            end()

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
    HANDLERS.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def abort_again() -> None:
    """Undo `end_instead_of_abort`, before Python ends."""
    if HANDLERS:
        ctypes.CDLL(None).signal(signal.SIGABRT, None)


def format_in_brackets(named: list[str]) -> str:
    return f" ({', '.join(named)})" if named else ""
