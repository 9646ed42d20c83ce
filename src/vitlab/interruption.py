"""End a command by Ctrl-C without a traceback: at once while it imports libraries, which may hide the exception, and
later by KeyboardInterrupt, so that it releases its folders."""

import os
import signal
import threading
from types import FrameType


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
