"""Explain in one sentence that a data worker died or hangs, in place of torch's traceback."""

import re
from pathlib import Path

from vitlab.errors import DataError, format_error

SHARED_MEMORY = Path("/dev/shm")  # workers pass batches through it; 64 MB in many containers
TROUBLE = re.compile(r"DataLoader (worker \(pid.*|timed out.*)|unable to \w+ .*?(shared memory|/torch_).*")
LOST = (ConnectionError, EOFError, FileNotFoundError)  # raised for a batch whose worker died before it was fetched


def explain_lost_worker(error: Exception, *, stalled: bool = False) -> DataError | None:
    """Build the error to raise for torch's error about a worker; None for any other error. `stalled`: workers were
    killed because no batch came."""
    words = format_error(error)
    found = TROUBLE.search(words)
    lost = isinstance(error, LOST) and "in DataLoader worker process" not in words
    if found is None and not lost:
        return None
    if stalled or (found and "timed out" in found.group()):
        return DataError(
            "no batch came from the data workers within data.loading.stall_timeout seconds: a disk or network share "
            "hangs or is too slow; check it, or set data.loading.stall_timeout higher"
        )
    what = found.group() if found else "with a batch"
    return DataError(
        f"a data worker died ({what}): most often memory ran out, or shared memory ({SHARED_MEMORY}); set "
        "data.loading.num_workers or data.loading.prefetch_batches lower"
    )
