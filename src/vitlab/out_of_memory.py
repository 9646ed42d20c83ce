"""Recognise that memory has run out, whichever library says so and however, and refuse with what would fit."""

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vitlab.errors import ConfigError

WORDS = re.compile(r"out of memory|(can't|cannot|unable to) allocate|not enough memory|bad_alloc|ALLOC_FAILED", re.I)


def ran_out(error: BaseException) -> bool:
    """Whether an error says that the memory of the machine or of a GPU does not suffice."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError | RuntimeError) and bool(WORDS.search(str(error)))
    )


@contextmanager
def refusing(sentence: Callable[[], str]) -> Iterator[None]:
    """Raise ConfigError if memory runs out within; its sentence is made once memory is free again."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not ran_out(error):
            raise
        traceback.clear_frames(error.__traceback__)  # whose tensors they are
        raise ConfigError(f"memory ran out {sentence()}") from error


def halved(key: str, size: int) -> str:
    """Advise on a batch whose memory cannot be counted: half of it."""
    if size == 1:
        return "with a single image at once; take smaller ones, or a smaller model"
    return f"with {key}={size} images at once; set {key}={size // 2}"
