"""Start a sweep: lock its folder, run its jobs, and report."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitlab.checkpoints.run_folder import make_folders
from vitlab.checkpoints.run_lock import leave, take
from vitlab.errors import VitlabError
from vitlab.reports.run import read_result
from vitlab.sweeps.board import Board
from vitlab.sweeps.engine import Engine
from vitlab.sweeps.folder import ENDED, Job, SweepFolder
from vitlab.sweeps.results import Results
from vitlab.sweeps.schedule import JobSource, Schedule
from vitlab.sweeps.stop import Stop


@contextmanager
def lock_sweep(folder: Path, *, new: bool, break_lock: bool) -> Iterator[SweepFolder]:
    """Yield a sweep's folder, locked against other processes; `new` if it must not exist yet. Raises CheckpointError
    for a folder that is in use or holds other files, and StorageError."""
    SweepFolder(folder).check_new()
    with make_folders() as make:
        folder = make(folder, new)
        take(folder, break_lock=break_lock)
        try:
            yield SweepFolder(folder)
        finally:
            leave(folder)


def run_jobs(sweep: SweepFolder, engine: Engine, command: list[str], source: JobSource) -> None:
    """Run the jobs that are not done, and print their outcomes. Raises VitlabError with the exit status of the first
    failed job, and SystemExit when a signal has ended the sweep."""
    for job in sweep.jobs():
        read_result(sweep.path / job.name)  # refuses a damaged one before a job starts
    results = Results(sweep)
    states = {job.name: sweep.state(job.name).refresh() for job in sweep.jobs()}
    with Board(sweep.jobs(), states, source.total) as board, Stop() as stop:
        schedule = Schedule(sweep, engine, command, source, [results.update, board.update])
        try:
            schedule.run(stop)
        finally:
            results.write()
    results.print()
    source.report(results.list_ended())
    if stop.number is not None:
        print("stopped; the same command resumes the sweep", flush=True)
        sys.exit(128 + stop.number)
    failed = [schedule.jobs[name] for name, state in schedule.states.items() if state.status not in ENDED]
    if failed:
        raise build_error(failed, schedule)


def build_error(failed: list[Job], schedule: Schedule) -> VitlabError:
    """Build the error that a sweep with failed jobs ends with."""
    first = schedule.states[failed[0].name]
    log = schedule.sweep.home(failed[0].name) / "console.log"
    error = VitlabError(
        f"{len(failed)} of {len(schedule.jobs)} jobs of the sweep failed; {failed[0].name}: {first.reason} ({log})"
    )
    error.status = first.exit_status if first.exit_status and first.exit_status < 8 else 1
    return error
