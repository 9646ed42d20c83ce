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
from vitlab.machine import find_cores
from vitlab.ranges import Count, Natural
from vitlab.sweeps.engine import Work
from vitlab.sweeps.folder import SERVER_LOG
from vitlab.sweeps.gpus import GpuClaims, list_gpus

SRC = Path(__file__).resolve().parents[2]


class Local:
    """Runs each job as a fork of a fork server. With `preload`, the server has imported the modules that all jobs need;
    without, each job imports them.

    `slots` is the number of jobs that run at once; null: one for each `gpus_per_slot` GPUs, or one without GPUs. Each
    slot has its own GPUs and `threads` threads; null: OMP_NUM_THREADS, or the cores divided by the slots.
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
        gpus = list_gpus() if gpus_per_slot else []
        if 0 < len(gpus) < gpus_per_slot:
            raise ConfigError(f"engine.gpus_per_slot is {gpus_per_slot}, but this machine has {len(gpus)} GPU(s)")
        self.gpus_per_slot = gpus_per_slot if gpus else 0
        most = len(gpus) // gpus_per_slot if gpus else None
        if slots is not None and most is not None and slots > most:
            raise ConfigError(
                f"engine.slots is {slots}, but there are GPUs for only {most}; engine.gpus_per_slot=0 lets slots share "
                "GPUs"
            )
        self.slots = slots or most or 1
        shared = max(1, len(find_cores()) // self.slots)
        self.threads = threads or os.environ.get("OMP_NUM_THREADS") or shared
        self.claims = GpuClaims(gpus)
        self.next_gpus: list[str] = []  # claimed for the next job
        self.jobs: dict[str, list[str]] = {}  # the GPUs of each running job
        self.buffer, self.ready = b"", False  # part of a line; whether the server has imported the modules
        self.sweep = sweep
        self.modules = modules if preload else []

    def __enter__(self) -> Self:
        self._start_server()
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.server.stdin is not None
        if not self.jobs:  # the server may still be importing
            self.server.kill()
        with suppress(BrokenPipeError):
            self.server.stdin.close()  # the server then ends the jobs that still run
        self.server.wait()
        if not self.log.stat().st_size:
            self.log.unlink()

    @property
    def free(self) -> int:
        """Count the jobs that could start now. The GPUs of the first of them are claimed."""
        left = self.slots - len(self.jobs)
        if left and self.gpus_per_slot:
            self.next_gpus = self.next_gpus or self.claims.take(self.gpus_per_slot)
            return left if self.next_gpus else 0
        return left

    def submit(self, work: Work) -> None:
        """Start a job."""
        self.jobs[work.name], self.next_gpus = self.next_gpus, []
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(self.jobs[work.name])} if self.gpus_per_slot else {}
        self._send(name=work.name, command=work.command, environment=environment)

    def cancel(self, name: str) -> None:
        """Ask a job to save its state and end."""
        self._send(name=name)

    def poll(self, seconds: float) -> list[str]:
        """Wait for at most `seconds`; return the jobs that have ended. If the server has died, all its jobs have ended,
        and a new server is started."""
        assert self.server.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.server.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return []
        if content := os.read(self.server.stdout.fileno(), 65536):
            *lines, self.buffer = (self.buffer + content).split(b"\n")
            messages = [json.loads(line) for line in lines]
            self.ready = self.ready or {"ready": True} in messages
            ended = [message["name"] for message in messages if "name" in message]
        else:
            if not self.ready:
                raise VitlabError(f"the fork server of the sweep could not start; see {self.log}")
            ended = list(self.jobs)
            self._start_server()
        for name in ended:
            self.claims.release(self.jobs.pop(name))
        return ended

    def _start_server(self) -> None:
        """Start a fork server in a session of its own, so that Ctrl-C reaches only this process."""
        paths = [str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": "1"}
        self.log = self.sweep / SERVER_LOG
        with open(self.log, "ab") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-P", "-m", "vitlab.sweeps.fork_server", str(self.sweep), *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self.buffer, self.ready = b"", False

    def _send(self, **order: Any) -> None:
        assert self.server.stdin is not None
        with suppress(BrokenPipeError):  # `poll` notices that the server has died
            self.server.stdin.write(json.dumps(order).encode() + b"\n")
            self.server.stdin.flush()
