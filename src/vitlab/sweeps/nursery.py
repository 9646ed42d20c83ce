"""The process that forks the jobs of a sweep on one machine, and supervises them: python -m vitlab.sweeps.nursery SWEEP
MODULE ...

It imports the modules once, and computes nothing, so that it has one thread and no device; each job is a fork of it,
the leader of its own session. Lines of JSON tell it on stdin what to start and to stop, and it tells on stdout what has
ended. When stdin ends, so do the jobs, as by SIGTERM, each with its state saved.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from vitlab.sweeps.attempt import SUPERVISED, Attempt, ended
from vitlab.sweeps.folder import HEARTBEAT, SweepFolder

LOOK = 0.2  # seconds between two looks at a job that somebody else is still at work on
GRACE = 60.0  # seconds that a job has to save its state and end


class Nursery:
    """The jobs of one sweep that run here. `serve` returns in each of the forks, with the words of its command."""

    def __init__(self, sweep: Path, modules: list[str]):
        self.sweep = SweepFolder(sweep)
        self.modules = modules
        self.waiting: dict[str, tuple[Attempt, dict[str, str]]] = {}
        self.running: dict[int, Attempt] = {}
        self.stopped: dict[int, float] = {}  # when to kill those that were asked to end
        self.out = os.dup(1)
        os.dup2(2, 1)  # what modules print when they are imported is no answer
        self.woken, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.selector = selectors.DefaultSelector()
        self.asked = b""

    def serve(self) -> list[str] | None:
        """Start, watch and stop jobs until stdin ends, then return None; in a fork, return the words it is to run."""
        for module in self.modules:
            try:
                importlib.import_module(module)
            except Exception:  # each job will say so, in its log
                traceback.print_exc()
        gc.collect()
        gc.freeze()  # what is shared with the forks stays shared
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        self._answer(ready=True)
        asking = True
        while asking or self.running:
            asking = self._listen() and asking
            if not asking:
                self.waiting.clear()
                for pid in self.running:
                    self._stop(pid)
            for name, (attempt, environment) in list(self.waiting.items()):
                if attempt.ready():
                    del self.waiting[name]
                    if (words := self._start(attempt, environment)) is not None:
                        return words
            self._reap()
            for attempt in self.running.values():
                attempt.beat()
            for pid, deadline in self.stopped.items():
                if time.monotonic() > deadline:
                    signalled(os.killpg, pid, signal.SIGKILL)
        return None

    def _listen(self) -> bool:
        """Wait for a while; False once nobody is left to give orders."""
        going_on = True
        for key, _ in self.selector.select(LOOK if self.waiting or self.stopped else HEARTBEAT):
            content = os.read(key.fd, 65536)
            if key.fd == self.woken:
                continue
            if not content:
                self.selector.unregister(0)
                going_on = False
            *lines, self.asked = (self.asked + content).split(b"\n")
            for line in lines:
                self._follow(json.loads(line))
        return going_on

    def _follow(self, order: dict[str, Any]) -> None:
        name = order["name"]
        if "command" in order:
            self.waiting[name] = (Attempt(self.sweep, name, order["command"]), order["environment"])
        elif name in self.waiting:
            del self.waiting[name]
            self._answer(name=name)
        for pid in [pid for pid, attempt in self.running.items() if attempt.name == name]:
            self._stop(pid)

    def _start(self, attempt: Attempt, environment: dict[str, str]) -> list[str] | None:
        """Fork a job. Returns its words in the fork."""
        words = attempt.begin()
        if words is None:
            self._answer(name=attempt.name)
            return None
        pid = os.fork()
        if pid:
            self.running[pid] = attempt
            return None
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.selector.close()
        for descriptor in (self.out, self.woken, self.waker):
            os.close(descriptor)
        log = os.open(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.environ.update({SUPERVISED: "1", **environment})
        return words

    def _stop(self, pid: int) -> None:
        if pid not in self.stopped:
            self.stopped[pid] = time.monotonic() + GRACE
            signalled(os.kill, pid, signal.SIGTERM)

    def _reap(self) -> None:
        for pid in list(self.running):
            if (status := ended(pid)) is None:
                continue
            if status < 0:
                signalled(os.killpg, pid, signal.SIGKILL)  # what it had started
            os.waitpid(pid, 0)
            self.stopped.pop(pid, None)
            attempt = self.running.pop(pid)
            attempt.end(status)
            self._answer(name=attempt.name)

    def _answer(self, **told: Any) -> None:
        with suppress(BrokenPipeError):
            os.write(self.out, json.dumps(told).encode() + b"\n")


def signalled(send: Any, pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        send(pid, number)


def run(words: list[str]) -> NoReturn:
    """Run a script as its command would, and end without tearing down what was imported, which takes seconds."""
    status: Any = 1
    try:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as stop:
        status = stop.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    folder, *modules = sys.argv[1:]
    if (words := Nursery(Path(folder), modules).serve()) is not None:
        run(words)
