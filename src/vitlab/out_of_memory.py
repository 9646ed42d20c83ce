"""Recognise out-of-memory errors of any library, and replace them by advice on what would fit."""

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vitlab.errors import ConfigError

WORDS = re.compile(
    r"out of memory|(can't|cannot|unable to) allocate|not enough memory|bad_alloc|ALLOC_FAILED"
    r"|could not create a (primitive|memory( object)?)$",  # oneDNN, which prepares room for its kernels
    re.IGNORECASE | re.MULTILINE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the machine or a GPU is out of memory."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError | RuntimeError) and bool(WORDS.search(str(error)))
    )


@contextmanager
def refuse_out_of_memory(sentence: Callable[[], str]) -> Iterator[None]:
    """Raise ConfigError if memory runs out in this context; `sentence` is called once the memory is free again."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # frees the tensors of those frames
        raise ConfigError(f"memory ran out {sentence()}") from error


def suggest_half(key: str, size: int) -> str:
    """Suggest half the batch size, where the memory of a batch cannot be predicted."""
    if size == 1:
        return "with a single image at once; choose smaller images, or a smaller model"
    return f"with {key}={size} images at once; set {key}={size // 2}"
