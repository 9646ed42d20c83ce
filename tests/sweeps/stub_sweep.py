"""A sweep of stubs: python stub_sweep.py FOLDER SLOTS NAME ... freezes it where it is new, and works it off."""

import os
import socket
import sys
import time
from pathlib import Path

from vitlab.sweeps import start
from vitlab.sweeps.folder import Job, Request, State, SweepFolder
from vitlab.sweeps.local import Local
from vitlab.sweeps.schedule import JobSource, Schedule
from vitlab.sweeps.stop import Stop

COMMAND = [str(Path(__file__).with_name("stub.py"))]


def frozen(folder, names):
    sweep = SweepFolder(Path(folder))
    sweep.path.mkdir(parents=True, exist_ok=True)
    if not sweep.is_saved:
        for number, name in enumerate(names):
            job = Job(number=number, name=name, overrides=[f"n={number}"], choices={}, monitor="m", run_id="r")
            sweep.add(job, b"")
        sweep.save(Request(config={}, same=[], jobs=[]))
    return sweep


def sweep_of_each_status(folder):
    """A sweep with a job of each status, which it bears as its name."""
    sweep = frozen(folder, ["done", "running", "failed", "lost", "far", "killed", "waiting"])
    here = {"host": socket.gethostname(), "attempts": 1, "started": time.time() - 100}
    states = {
        "done": State(status="done", score=0.75, seconds=12.0, attempts=2),
        "running": State(status="running", pid=os.getpid(), heartbeat=time.time(), **here),
        "failed": State(status="failed", reason="ConfigError: no", attempts=2),
        "lost": State(status="running", pid=2**22 + 1, heartbeat=time.time(), **here),  # no process has this number
        "far": State(status="running", pid=1, heartbeat=time.time() - 100, **{**here, "host": "elsewhere"}),
        "killed": State(status="killed", reason="SIGTERM", attempts=1),
    }
    for name, state in states.items():
        sweep.write_state(name, state)
    return sweep


def local(sweep, slots=2):
    return Local(slots=slots, gpus_per_slot=0, threads=1, preload=False, sweep=sweep.path, modules=[])


def run_jobs(sweep, slots=2, watchers=(), source=None):
    """Work off a sweep; its states by the names of its jobs."""
    with local(sweep, slots) as engine, Stop() as stop:
        schedule = Schedule(sweep, engine, COMMAND, source or JobSource(), list(watchers))
        schedule.run(stop)
    return {job.name: sweep.state(job.name) for job in sweep.jobs()}


if __name__ == "__main__":
    folder, slots, *names = sys.argv[1:]
    sweep = frozen(folder, names)
    with local(sweep, int(slots)) as engine:
        start.run_jobs(sweep, engine, COMMAND, JobSource())
