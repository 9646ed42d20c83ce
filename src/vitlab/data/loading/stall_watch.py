"""End data workers from which no batch comes, in every state that a worker can hang in."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TypeVar

Item = TypeVar("Item")
LOOK = 0.5  # seconds between two looks
GRACE = 2.0  # seconds that torch's own timeout has to raise first


class StallWatch:
    """Kills the workers once a batch is awaited for longer than `seconds` (0: never); `stalled` says whether it did.

    torch's own timeout covers the wait for a worker's message, but not the one for the memory that the message speaks
    of; and a worker that a disk or SIGSTOP holds takes no notice of SIGTERM, so that the end of the process would wait
    for it. `workers` is called when they are to be ended.
    """

    def __init__(self, workers: Callable[[], Sequence[BaseProcess]], seconds: float):
        self.workers, self.seconds, self.stalled = workers, seconds, False
        self.since: float | None = None  # the last batch was asked for
        self.over = threading.Event()

    def __enter__(self) -> "StallWatch":
        if self.seconds:
            threading.Thread(target=self.look, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()

    def await_each(self, begin: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """Yield the batches of an iterator that is begun here, and may wait for its workers then; while the next one is
        awaited, the time runs."""
        self.since = time.monotonic()
        iterator = begin()
        while True:
            self.since = time.monotonic()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self.since = None
            yield batch

    def look(self) -> None:
        while not self.over.wait(LOOK):
            since = self.since
            if since is not None and time.monotonic() - since > self.seconds + GRACE:
                self.stalled = True
                for worker in self.workers():
                    worker.kill()
                return

    def end(self) -> None:
        """Kill the workers, and wait until they are gone."""
        with silence_torch():
            for worker in self.workers():
                worker.kill()
            for worker in self.workers():
                worker.join()


@contextmanager
def silence_torch() -> Iterator[None]:
    """Keep torch from raising, from a handler and in place of another error, where a worker ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)
