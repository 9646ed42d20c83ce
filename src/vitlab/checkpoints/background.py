"""Do slow things with files while training goes on, one after the other, and tell what failed."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A thread for one thing at a time. What that raises, the next call of any method raises."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="files")
        self.running: Future[list[None]] | None = None

    def begin(self, *acts: Callable[[], None]) -> None:
        """Wait for what is under way, then begin these, one after the other."""
        self.finish()
        self.running = self.thread.submit(lambda: [act() for act in acts])

    def check(self) -> None:
        """Raise what has failed since; wait for nothing."""
        if self.running is not None and self.running.done():
            self.finish()

    def finish(self) -> None:
        """Wait for what is under way."""
        running, self.running = self.running, None
        if running is not None:
            running.result()
