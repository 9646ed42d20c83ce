"""Keep the tables of a sweep's outcomes up to date."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_lock import leave, take
from vitlab.errors import CheckpointError
from vitlab.reports.run import read_result
from vitlab.reports.sweep import print_tables, write_tables
from vitlab.sweeps.folder import Job, State, SweepFolder

SHARE = 0.05  # of the time that may be spent on writing tables


class Results:
    """Rewrites results.csv and seeds.csv of a sweep when its jobs end."""

    def __init__(self, sweep: SweepFolder):
        self.sweep = sweep
        self.outcomes = {job.name: build_outcome(job, sweep.state(job.name)) for job in sweep.jobs()}
        self.due = 0.0

    def update(self, job: Job, state: State) -> None:
        """Record a job's new state, and rewrite the tables unless that was done a moment ago."""
        self.outcomes[job.name] = build_outcome(job, state)
        if state.status in ("done", "failed", "pruned") and time.monotonic() >= self.due:
            started = time.monotonic()
            self.write()
            self.due = time.monotonic() + (time.monotonic() - started) / SHARE

    def write(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return write_tables(self.sweep.path, self.list_ended())

    def list_ended(self) -> list[dict[str, Any]]:
        """Return the outcomes of the jobs that have ended."""
        return [one for one in self.outcomes.values() if one is not None]

    def print(self) -> None:
        print_tables(self.sweep.path, *self.write())


def build_outcome(job: Job, state: State) -> dict[str, Any] | None:
    """Build the row of a job for the tables; None while it has not ended."""
    if state.status not in ("done", "failed", "pruned"):
        return None
    return {
        "folder": job.name,
        "status": f"failed: {state.reason}" if state.status == "failed" else state.status,
        "monitor": job.monitor,
        "score": state.score,
        "seconds": state.seconds,
        "overrides": job.values,
    }


def record_resumed_job(folder: Path) -> None:
    """Record the run of a job that the user resumed without its sweep, and rewrite the tables."""
    sweep, result = SweepFolder(folder.parent), read_result(folder)
    home = sweep.home(folder.name)
    try:
        take(home, break_lock=False)
    except CheckpointError:  # the sweep is running it, and records it itself
        return
    if result is not None:
        state = sweep.state(folder.name)
        sweep.write_state(folder.name, replace(state, status="done", score=result.get("score"), reason=None))
    leave(home)
    Results(sweep).print()
