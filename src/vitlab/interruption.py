"""End a command by Ctrl-C without a traceback: at once while it imports libraries, which may hide the exception, and
later by KeyboardInterrupt, so that it releases its folders."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NUMBERS = {"KeyboardInterrupt": signal.SIGINT, "SIGTERMException": signal.SIGTERM}  # by the error that they raise
SOON = 0.05  # seconds
AGAIN: list[int] = []  # signals that this process sends itself once more


def end_at_once() -> None:
    """Make SIGINT end the process with status 130, unless SIGINT is ignored or has another handler."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is default:
        signal.signal(signal.SIGINT, end)


def raise_again() -> None:
    """Make SIGINT raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, default)


def end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


default = signal.default_int_handler


@contextmanager
def heed_ignored() -> Iterator[None]:
    """Within, send a signal again soon whose error Python ignores, as in a destructor or while it forks."""
    before = sys.unraisablehook

    def hear(ignored: Any) -> None:
        number = NUMBERS.get(type(ignored.exc_value).__name__)
        if number is None:
            before(ignored)
            return
        AGAIN.append(number)
        threading.Timer(SOON, os.kill, [os.getpid(), number]).start()

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before
