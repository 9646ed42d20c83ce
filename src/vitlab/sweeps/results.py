"""Keep tables of what the jobs of a sweep have come to, never far behind."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_lock import leave, take
from vitlab.errors import CheckpointError
from vitlab.reports.run import result_of
from vitlab.reports.sweep import print_tables, write_tables
from vitlab.sweeps.folder import Job, State, SweepFolder

SHARE = 0.05  # share of the time that may go into writing tables


class Results:
    """Keeps results.csv and seeds.csv of a sweep up to date while its jobs end."""

    def __init__(self, sweep: SweepFolder):
        self.sweep = sweep
        self.outcomes = {job.name: outcome(job, sweep.state(job.name)) for job in sweep.jobs()}
        self.due = 0.0

    def changed(self, job: Job, state: State) -> None:
        """Take note of a change, and rewrite the tables unless that was done a moment ago."""
        self.outcomes[job.name] = outcome(job, state)
        if state.status in ("done", "failed", "pruned") and time.monotonic() >= self.due:
            begun = time.monotonic()
            self.write()
            self.due = time.monotonic() + (time.monotonic() - begun) / SHARE

    def write(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return write_tables(self.sweep.path, self.ended())

    def ended(self) -> list[dict[str, Any]]:
        """Give the outcomes of the jobs that have ended."""
        return [one for one in self.outcomes.values() if one is not None]

    def show(self) -> None:
        print_tables(self.sweep.path, *self.write())


def outcome(job: Job, state: State) -> dict[str, Any] | None:
    """Give a job's outcome for the tables; None for one that has not ended."""
    if state.status not in ("done", "failed", "pruned"):
        return None
    return {
        "folder": job.name,
        "status": f"failed: {state.reason}" if state.status == "failed" else state.status,
        "monitor": job.monitor,
        "score": state.score,
        "seconds": state.seconds,
        "overrides": job.given,
    }


def note_by_hand(folder: Path) -> None:
    """Record a job's run that somebody resumed without its sweep, and rewrite the tables."""
    sweep, result = SweepFolder(folder.parent), result_of(folder)
    home = sweep.home(folder.name)
    try:
        take(home, break_lock=False)
    except CheckpointError:  # the sweep is at work on it, and will see for itself
        return
    if result is not None:
        state = sweep.state(folder.name)
        sweep.write_state(folder.name, replace(state, status="done", score=result.get("score"), reason=None))
    leave(home)
    Results(sweep).show()
