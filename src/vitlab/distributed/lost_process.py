"""Say in a sentence that another process of a run is gone, in place of a library's traceback."""

import re
from collections.abc import Callable

import torch

from vitlab.distributed.ending import ENDED, NO_ANSWER, format_in_brackets
from vitlab.errors import DistributedError, format_error

GONE = re.compile(r"connection (closed|reset|refused)|broken pipe|remote process exited", re.IGNORECASE)
SILENT = re.compile(r"timed out|timeout", re.IGNORECASE)


def make_lost_error(error: Exception, lost: Callable[[], list[str]] = list) -> DistributedError | None:
    """A refusal for an error of a collective operation, which names what is `lost`; None for any other error."""
    if not torch.distributed.is_available():
        return None
    words = format_error(error)
    of_torch = isinstance(error, torch.distributed.DistError)
    started = torch.distributed.is_initialized()
    of_gloo = started and ("gloo" in words or "pair closure" in words)
    if SILENT.search(words) and (of_torch or of_gloo):
        return DistributedError(NO_ANSWER.format(format_in_brackets(lost())))
    if GONE.search(words) and (of_torch or started):
        return DistributedError(ENDED.format(format_in_brackets(lost())))
    return DistributedError(f"the processes of this run cannot work together: {words}") if of_torch else None
