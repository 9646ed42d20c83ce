"""Keep what was measured of this machine, so that two runs of one config never differ by a measurement's noise."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from vitlab.atomic_files import write_json
from vitlab.errors import StorageError
from vitlab.machine import cache_folder, described_cpu

FILE = "seconds.json"
WAIT = 30.0  # seconds for another process that measures

Seconds = dict[str, float]


def measured_once(subject: str, ways: list[str], measure: Callable[[], Seconds | None]) -> Seconds | None:
    """Give the seconds that each of the `ways` of doing something takes on this CPU: as they were measured before, else
    as `measure` finds them now, one process at a time. They are kept in the user's cache folder; where nothing can be
    kept, or the file there is damaged, they are measured anew. None, where nothing was measured, is not kept."""
    folder, subject = cache_folder("measurements"), f"{subject} on {described_cpu()}"
    if folder is None:
        return measure()
    file = folder / FILE
    if (seconds := known(file, subject, ways)) is not None:
        return seconds
    with one_at_a_time(file.with_suffix(".lock")):
        if (seconds := known(file, subject, ways)) is None and (seconds := measure()) is not None:
            with suppress(OSError, StorageError):
                write_json(file, content(file) | {subject: seconds})
    return seconds


def known(file: Path, subject: str, ways: list[str]) -> Seconds | None:
    """Give what was measured of a subject before; None where nothing was, or the file holds something else."""
    seconds = content(file).get(subject)
    if not isinstance(seconds, dict) or seconds.keys() != set(ways):
        return None
    right = (isinstance(value, float) and math.isfinite(value) and value > 0 for value in seconds.values())
    return seconds if all(right) else None


def content(file: Path) -> dict[str, Any]:
    """Read all that was measured; nothing from a file that is missing or damaged."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """Wait for other processes that measure: they would disturb each other. Not for ever, since one may be stopped, and
    not where the file system has no locks."""
    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):  # Timeout is an OSError
            stack.enter_context(FileLock(file, timeout=WAIT))
        yield
