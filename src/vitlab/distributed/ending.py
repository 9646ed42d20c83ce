"""End a process that waits for another one of its run, which is gone."""

import os
import sys
import time

from vitlab.errors import DistributedError

WATCH = 0.5  # seconds between two looks at other processes
GRACE = 30.0  # seconds that a process has to see for itself that another one is gone
ENDED = (
    "another process of this run has ended{}; what it said stands above, unless it was killed: go on with resume=<the "
    "run's folder>"
)


def end_with(first: int) -> None:
    """End this process when the one that has started it is gone."""
    while os.getppid() == first:
        time.sleep(WATCH)
    time.sleep(GRACE)
    leave(DistributedError.status, ["rank 0"])


def leave(status: int, lost: list[str]) -> None:
    """End the process from another thread than the one that waits in a collective operation."""
    print(f"\nDistributedError: {ENDED.format(format_in_brackets(lost))}", file=sys.stderr, flush=True)
    os._exit(status)


def format_in_brackets(named: list[str]) -> str:
    return f" ({', '.join(named)})" if named else ""
