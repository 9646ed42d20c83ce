"""Do slow things with files while training goes on, one after the other, and tell what failed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

HELD = 60.0  # seconds after which what is held begins by itself


class Background:
    """A thread that does one thing after the other, in the order in which they were begun. What one of them raises,
    those that wait raise in place of being done, and so does the next call of any method."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="files")
        self.begun: list[Future[None]] = []
        self.free = threading.Event()

    def begin(self, *acts: Callable[[], None], held: bool = False) -> Future[None]:
        """Begin these, one after the other, once all that was begun before is done; `held`: not before the next call of
        a method."""
        self.check()
        self.free = threading.Event()
        self.begun.append(self.thread.submit(do, acts, self.begun[-1] if self.begun else None, self.free))
        if not held:
            self.free.set()
        return self.begun[-1]

    def check(self) -> None:
        """Raise what has failed since; wait for nothing."""
        self.free.set()
        while self.begun and self.begun[0].done():
            self.begun.pop(0).result()

    def finish(self) -> None:
        """Wait for all that was begun."""
        self.free.set()
        while self.begun:
            self.begun.pop(0).result()


def do(acts: tuple[Callable[[], None], ...], before: Future[None] | None, free: threading.Event) -> None:
    """Do these, unless what was begun before has failed."""
    if before is not None:
        before.result()
    free.wait(HELD)
    for act in acts:
        act()
