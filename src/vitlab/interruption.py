"""End a command by Ctrl-C without a traceback: at once while it imports libraries, which may turn an exception into
another one; with its folders released while it is at work."""

import os
import signal
import threading
from types import FrameType


def end_at_once() -> None:
    """From here on, SIGINT ends the process with 130. Does nothing where SIGINT is ignored or has a handler."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is default:
        signal.signal(signal.SIGINT, end)


def raise_again() -> None:
    """From here on, SIGINT raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, default)


def end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


default = signal.default_int_handler
