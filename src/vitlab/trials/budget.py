"""Keep the time of a fit: what is spent, over all starts, and what is left."""

import time


class Budget:
    """`minutes` from the first start on; `before`: seconds that earlier starts have spent."""

    def __init__(self, minutes: float, before: float = 0.0):
        self.seconds = 60 * minutes
        self.before = before
        self.begun = time.monotonic()

    @property
    def spent(self) -> float:
        """Count the seconds that all starts have spent."""
        return self.before + time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Count the seconds that are left; negative once the time is over."""
        return self.seconds - self.spent

    def add_before(self, seconds: float) -> None:
        """Count the seconds of earlier starts, too."""
        self.before += seconds
