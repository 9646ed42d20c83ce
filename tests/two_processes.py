"""Runs of two processes with gloo on a CPU, watched from outside."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from conftest import SRC, TINY, chosen

TWO = chosen(*TINY, "~callbacks.batch_picture", "~callbacks.model_views", "trainer=ddp", "trainer.devices=2")
TWO += ["trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.log_every_n_steps=1"]
ENTRY = """
import os, sys, time
sys.path.insert(0, {src!r})
rank = os.environ.get("LOCAL_RANK", "0")
{patch}
import train
train.main()
"""


@contextmanager
def two_processes(folder, *options, patch="", words=TWO):
    """Train in `folder`/run, in processes that run the lines of `patch` first; gives the first of them. All are gone
    afterwards."""
    (folder / "entry.py").write_text(ENTRY.format(src=str(SRC), patch=patch), encoding="utf-8")
    resumed = any(option.startswith("resume=") for option in options)
    command = [sys.executable, "entry.py", *chosen(*([] if resumed else [*words, "hydra.run.dir=run"]), *options)]
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        first = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, start_new_session=True)
    try:
        yield first
    finally:
        if is_alive(first):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()


def is_alive(first):
    """Whether any process of the run is."""
    first.poll()
    try:
        os.killpg(first.pid, 0)
    except ProcessLookupError:
        return False
    return True


def status_of(first, folder, seconds=250):
    """With which the run ends, and all its processes with it."""
    try:
        status = first.wait(seconds)
        until(lambda: not is_alive(first), 60)
    except (subprocess.TimeoutExpired, AssertionError) as error:
        raise AssertionError(f"{error}\n{(folder / 'err').read_text()}") from error
    return status


def other_process(first):
    """The number of the process that the first one has started."""
    return int(Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()[0])


def until(what, seconds):
    """Wait until what() is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.1)


def logged_steps(folder):
    """How many rows metrics.csv has."""
    path = folder / "run" / "metrics.csv"
    return len(path.read_text().splitlines()) - 1 if path.is_file() else 0


def sentences(folder):
    """The refusals on stderr, beside which nothing of a traceback may stand there, Python's or that of a library."""
    lines = (folder / "err").read_text().splitlines()
    noise = ("Traceback", "deprecated")
    assert not [line for line in lines if any(map(line.__contains__, noise)) or line.startswith(("  File ", "frame #"))]
    return [line for line in lines if "Error: " in line]
