"""Keep the measurements of this machine, so that noise in them never makes two runs of one config differ."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from vitlab.atomic_files import write_json
from vitlab.errors import StorageError
from vitlab.machine import describe_cpu, make_cache_folder

FILE = "seconds.json"
WAIT_SECONDS = 30.0  # for another process that measures

Seconds = dict[str, float]


def measure_once(subject: str, ways: list[str], measure: Callable[[], Seconds | None]) -> Seconds | None:
    """Return the seconds that each of the `ways` of doing something takes on this CPU.

    They are read from the user's cache folder; if they are missing there or damaged, `measure` is called, in one
    process at a time, and its result is kept. None from `measure` is returned and not kept.
    """
    folder, subject = make_cache_folder("measurements"), f"{subject} on {describe_cpu()}"
    if folder is None:
        return measure()
    file = folder / FILE
    if (seconds := read_seconds(file, subject, ways)) is not None:
        return seconds
    with lock_measuring(file.with_suffix(".lock")):
        if (seconds := read_seconds(file, subject, ways)) is None and (seconds := measure()) is not None:
            with suppress(OSError, StorageError):
                write_json(file, read_file(file) | {subject: seconds})
    return seconds


def read_seconds(file: Path, subject: str, ways: list[str]) -> Seconds | None:
    """Read the seconds of a subject; None if the file has none for exactly these ways."""
    seconds = read_file(file).get(subject)
    if not isinstance(seconds, dict) or seconds.keys() != set(ways):
        return None
    valid = (isinstance(value, float) and math.isfinite(value) and value > 0 for value in seconds.values())
    return seconds if all(valid) else None


def read_file(file: Path) -> dict[str, Any]:
    """Read all measurements; an empty dict if the file is missing or damaged."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def lock_measuring(file: Path) -> Iterator[None]:
    """Wait until no other process measures, since they would disturb each other; at most WAIT_SECONDS, and not at all
    on a file system without locks."""
    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):  # Timeout is an OSError
            stack.enter_context(FileLock(file, timeout=WAIT_SECONDS))
        yield
