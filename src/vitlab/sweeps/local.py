"""Run jobs on this machine, several at once."""

import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from vitlab.errors import ConfigError, VitlabError
from vitlab.ranges import Count, Natural
from vitlab.sweeps.engine import Work
from vitlab.sweeps.gpus import Claims, gpus_here

SRC = Path(__file__).resolve().parents[2]


class Local:
    """Forks each job from a process that has imported what all of them need (the nursery), or, without `preload`, from
    one that has not, so that each imports it anew.

    `slots` jobs run at once: null means one for each `gpus_per_slot` GPUs, or one where there are none. A slot has its
    own GPUs, and `threads` threads; null divides the cores, unless the environment says OMP_NUM_THREADS.
    """

    def __init__(
        self,
        *,
        slots: Count | None,
        gpus_per_slot: Natural,
        threads: Count | None,
        preload: bool,
        sweep: Path,
        modules: list[str],
    ):
        for name, value, least in (("slots", slots, 1), ("threads", threads, 1), ("gpus_per_slot", gpus_per_slot, 0)):
            if value is not None and value < least:
                raise ValueError(f"{name} {value} is not at least {least}")
        gpus = gpus_here() if gpus_per_slot else []
        if 0 < len(gpus) < gpus_per_slot:
            raise ConfigError(f"engine.gpus_per_slot is {gpus_per_slot}, and this machine has {len(gpus)} GPU(s)")
        self.gpus_per_slot = gpus_per_slot if gpus else 0
        most = len(gpus) // gpus_per_slot if gpus else None
        if slots is not None and most is not None and slots > most:
            raise ConfigError(
                f"engine.slots is {slots}, and the GPUs are enough for {most}; engine.gpus_per_slot=0 shares them"
            )
        self.slots = slots or most or 1
        shared = max(1, len(os.sched_getaffinity(0)) // self.slots)
        self.threads = threads or os.environ.get("OMP_NUM_THREADS") or shared
        self.claims = Claims(gpus)
        self.found: list[str] = []  # GPUs for the next job
        self.jobs: dict[str, list[str]] = {}  # running jobs, and their GPUs
        self.heard, self.born = b"", False  # part of a line from the nursery; it has imported everything
        self.sweep = sweep
        self.modules = modules if preload else []

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.nursery.stdin is not None
        if not self.jobs:  # it may still be importing
            self.nursery.kill()
        with suppress(BrokenPipeError):
            self.nursery.stdin.close()  # upon which it ends what still runs
        self.nursery.wait()
        if not self.log.stat().st_size:
            self.log.unlink()

    @property
    def free(self) -> int:
        """Count the jobs that it would take now; the first of them has its GPUs."""
        left = self.slots - len(self.jobs)
        if left and self.gpus_per_slot:
            self.found = self.found or self.claims.take(self.gpus_per_slot)
            return left if self.found else 0
        return left

    def submit(self, work: Work) -> None:
        """Take a job."""
        self.jobs[work.name], self.found = self.found, []
        own = {"CUDA_VISIBLE_DEVICES": ",".join(self.jobs[work.name])} if self.gpus_per_slot else {}
        self._tell(name=work.name, command=work.command, environment=own)

    def cancel(self, name: str) -> None:
        """End a job, its state saved."""
        self._tell(name=name)

    def poll(self, seconds: float) -> list[str]:
        """Wait for at most that long; return the jobs that have ended. If the nursery is gone, these are all that it
        had, and a new one is started."""
        assert self.nursery.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.nursery.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return []
        if content := os.read(self.nursery.stdout.fileno(), 65536):
            *lines, self.heard = (self.heard + content).split(b"\n")
            told = [json.loads(line) for line in lines]
            self.born = self.born or {"ready": True} in told
            ended = [one["name"] for one in told if "name" in one]
        else:
            if not self.born:
                raise VitlabError(f"jobs cannot be started here; {self.log} says why")
            ended = list(self.jobs)
            self._open()
        for name in ended:
            self.claims.give_back(self.jobs.pop(name))
        return ended

    def _open(self) -> None:
        """Start a nursery that this terminal's Ctrl-C does not reach; only this process is to hear it."""
        paths = [str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": "1"}
        self.log = self.sweep / "nursery.log"
        with open(self.log, "ab") as log:
            self.nursery = subprocess.Popen(
                [sys.executable, "-P", "-m", "vitlab.sweeps.nursery", str(self.sweep), *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self.heard, self.born = b"", False

    def _tell(self, **order: Any) -> None:
        assert self.nursery.stdin is not None
        with suppress(BrokenPipeError):  # `poll` sees that it is gone
            self.nursery.stdin.write(json.dumps(order).encode() + b"\n")
            self.nursery.stdin.flush()
