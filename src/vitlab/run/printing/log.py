"""Write train.log, the log of a run: its start, every validation and the result, with the time, or why it ended."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from vitlab.callbacks.interruption import Interrupted
from vitlab.checkpoints.run_folder import has_state
from vitlab.config.arguments import format_override
from vitlab.config.refusals import translate_refusal
from vitlab.invocation import format_command, shorten_path
from vitlab.run.storage.start import Start

LOG = logging.getLogger(__name__)
FILE = "train.log"
FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


class RedactingFormatter(logging.Formatter):
    """Format a record, with its traceback, as it may be kept."""

    def __init__(self, start: Start):
        super().__init__(FORMAT)
        self.kept = start.kept

    def format(self, record: logging.LogRecord) -> str:
        return self.kept.text(super().format(record))


def say_how_to_resume(start: Start) -> str:
    """Return the line that ends a run which a signal has stopped."""
    if not has_state(start.folder):
        return "stopped, and no state is saved"
    resume = format_override("resume", str(shorten_path(start.folder)))
    return f"stopped, state saved; go on: {format_command('train')} {resume}"


@contextmanager
def write_log(start: Start, first_process: bool) -> Iterator[None]:
    """While the run is at work, write to its train.log what vitlab logs, and warnings of libraries."""
    if not first_process:
        yield
        return
    handler = logging.FileHandler(start.folder / FILE, encoding="utf-8")
    handler.setFormatter(RedactingFormatter(start))
    root, ours = logging.getLogger(), logging.getLogger("vitlab")
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    except Interrupted:
        line = say_how_to_resume(start)
        print(line, flush=True)
        LOG.info(line)
        raise
    except Exception as error:
        refusal = translate_refusal(error)
        LOG.info("%s: %s", type(refusal or error).__name__, refusal or error, exc_info=None if refusal else error)
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
