"""Fork the jobs of a sweep on one machine, and supervise them: python -m vitlab.sweeps.fork_server SWEEP MODULE ...

The process imports the modules once. It computes nothing, so that it has one thread and no device. Each job is a fork
of it and leads its own session. Orders to start or stop a job arrive on stdin as lines of JSON, and the names of ended
jobs leave on stdout. When stdin closes, the jobs get SIGTERM and save their state.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from vitlab.sweeps.attempt import SUPERVISED, Attempt, read_exit_status
from vitlab.sweeps.folder import HEARTBEAT, SweepFolder

POLL_SECONDS = 0.2  # while a job waits for another process to release it, or has been asked to end
GRACE_SECONDS = 60.0  # for a job to save its state and end, before it is killed


class ForkServer:
    """Runs the jobs of one sweep. `serve` returns in each fork, with the command that the fork is to run."""

    def __init__(self, sweep: Path, modules: list[str]):
        self.sweep = SweepFolder(sweep)
        self.modules = modules
        self.waiting: dict[str, tuple[Attempt, dict[str, str]]] = {}
        self.running: dict[int, Attempt] = {}
        self.deadlines: dict[int, float] = {}  # when to kill the jobs that were asked to end
        self.out = os.dup(1)
        os.dup2(2, 1)  # modules may print when they are imported
        self.woken, self.waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.waker, False)
        self.selector = selectors.DefaultSelector()
        self.buffer = b""

    def serve(self) -> list[str] | None:
        """Start, watch and stop jobs until stdin closes, then return None; in a fork, return the command to run."""
        for module in self.modules:
            try:
                importlib.import_module(module)
            except Exception:  # each job meets it again, and its log has it
                traceback.print_exc()
        gc.collect()
        gc.freeze()  # keeps the pages that forks share unwritten
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        self._send(ready=True)
        connected = True
        while connected or self.running:
            connected = self._read_orders() and connected
            if not connected:
                self.waiting.clear()
                for pid in self.running:
                    self._stop(pid)
            for name, (attempt, environment) in list(self.waiting.items()):
                if attempt.acquire():
                    del self.waiting[name]
                    if (command := self._start(attempt, environment)) is not None:
                        return command
            self._reap()
            for attempt in self.running.values():
                attempt.write_heartbeat()
            for pid, deadline in self.deadlines.items():
                if time.monotonic() > deadline:
                    send_signal(os.killpg, pid, signal.SIGKILL)
        return None

    def _read_orders(self) -> bool:
        """Wait for orders or for a job to end, and follow the orders. False once stdin is closed."""
        connected = True
        for key, _ in self.selector.select(POLL_SECONDS if self.waiting or self.deadlines else HEARTBEAT):
            content = os.read(key.fd, 65536)
            if key.fd == self.woken:
                continue
            if not content:
                self.selector.unregister(0)
                connected = False
            *lines, self.buffer = (self.buffer + content).split(b"\n")
            for line in lines:
                self._follow(json.loads(line))
        return connected

    def _follow(self, order: dict[str, Any]) -> None:
        """Start the job that an order has a command for, or stop the job that it only names."""
        name = order["name"]
        if "command" in order:
            self.waiting[name] = (Attempt(self.sweep, name, order["command"]), order["environment"])
        elif name in self.waiting:
            del self.waiting[name]
            self._send(name=name)
        for pid in [pid for pid, attempt in self.running.items() if attempt.name == name]:
            self._stop(pid)

    def _start(self, attempt: Attempt, environment: dict[str, str]) -> list[str] | None:
        """Fork a job. Returns its command in the fork, and None in this process."""
        command = attempt.begin()
        if command is None:
            self._send(name=attempt.name)
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
        return command

    def _stop(self, pid: int) -> None:
        if pid not in self.deadlines:
            self.deadlines[pid] = time.monotonic() + GRACE_SECONDS
            send_signal(os.kill, pid, signal.SIGTERM)

    def _reap(self) -> None:
        for pid in list(self.running):
            if (status := read_exit_status(pid)) is None:
                continue
            if status < 0:
                send_signal(os.killpg, pid, signal.SIGKILL)  # the processes that it had started
            os.waitpid(pid, 0)
            self.deadlines.pop(pid, None)
            attempt = self.running.pop(pid)
            attempt.end(status)
            self._send(name=attempt.name)

    def _send(self, **message: Any) -> None:
        with suppress(BrokenPipeError):
            os.write(self.out, json.dumps(message).encode() + b"\n")


def send_signal(send: Callable[[int, int], None], pid: int, number: int) -> None:
    """Send a signal by os.kill or os.killpg, unless the process has already gone."""
    with suppress(ProcessLookupError):
        send(pid, number)


def run(command: list[str]) -> NoReturn:
    """Run a script as its command would, and exit without unloading the imported modules, which takes seconds."""
    status: Any = 1
    try:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")
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
    if (command := ForkServer(Path(folder), modules).serve()) is not None:
        run(command)
