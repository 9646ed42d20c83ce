"""Write a checkpoint that training goes on to change: a small one at once, a large one from a copy, meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from vitlab.checkpoints.background import Background
from vitlab.checkpoints.snapshot import Snapshot, count_bytes

LARGE = 2**26  # bytes of what is written while training goes on: a smaller one takes no tenth of a second


class Writer:
    """Writes the checkpoints of one file, each when the one before is written. Writers of several files share a
    `background`: of two that are large, the one that was begun first is on the disk first. One that is `held` is begun
    with what the other writes then, or at the next step: a copy takes long while the interpreter writes."""

    def __init__(self, background: Background, *, held: bool = False):
        self.background, self.held = background, held
        self.snapshot: Snapshot | None = None
        self.written: Future[None] | None = None

    def write(
        self, checkpoint: dict[str, Any], write: Callable[[dict[str, Any]], None], *then: Callable[[], None]
    ) -> None:
        """Call `write` with the checkpoint, or, while training goes on, with a copy; what comes `then` is done in the
        background either way."""
        self.wait()
        if count_bytes(checkpoint) < LARGE:
            write(checkpoint)
            self.written = self.background.begin(*then)
        else:
            self.snapshot = self.snapshot or Snapshot()
            copy = self.snapshot.copy_state(checkpoint)
            self.written = self.background.begin(partial(write, copy), *then, held=self.held)

    def wait(self) -> None:
        """Wait until the last checkpoint is written. Raises StorageError where it cannot be."""
        if self.written is not None:
            if self.held:
                self.background.check()
            self.written.result()

    def finish(self) -> None:
        """Wait, and leave the memory of the copy to others."""
        self.wait()
        self.snapshot = None
