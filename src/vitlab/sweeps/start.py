"""Start a sweep: freeze it or resume it, work off its jobs, and report."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitlab.checkpoints.run_folder import made_folders
from vitlab.checkpoints.run_lock import leave, take
from vitlab.errors import VitlabError
from vitlab.reports.run import result_of
from vitlab.sweeps.board import Board
from vitlab.sweeps.engine import Engine
from vitlab.sweeps.folder import Job, SweepFolder
from vitlab.sweeps.results import Results
from vitlab.sweeps.schedule import Schedule, Source
from vitlab.sweeps.stop import Stop


class NoMore:
    """A source without new jobs: all of them were frozen before the first one starts."""

    more = False
    total = None

    def next(self) -> Job:
        raise AssertionError("there are no more")

    def superfluous(self, job: Job) -> str | None:
        return None

    def note(self, job: Job, state: Any) -> None:
        pass

    def conclude(self, outcomes: list[dict[str, Any]]) -> None:
        pass


@contextmanager
def taken(folder: Path, *, new: bool, break_lock: bool) -> Iterator[SweepFolder]:
    """Lock the folder of a sweep while no other process works on it; `new`: one that does not exist yet. Raises
    CheckpointError for one that is in use, and for one that holds something else, and StorageError."""
    SweepFolder(folder).check_new()
    with made_folders() as make:
        folder = make(folder, new)
        take(folder, break_lock=break_lock)
        try:
            yield SweepFolder(folder)
        finally:
            leave(folder)


def work_off(sweep: SweepFolder, engine: Engine, command: list[str], source: Source) -> None:
    """Run the jobs that are not done, and print their outcomes. Raises VitlabError with the status of the first failure
    if jobs have failed, and SystemExit when a signal has ended the sweep."""
    for job in sweep.jobs():
        result_of(sweep.path / job.name)  # a damaged one is refused before a job starts
    results = Results(sweep)
    states = {job.name: sweep.state(job.name).seen() for job in sweep.jobs()}
    with Board(sweep.jobs(), states, source.total) as board, Stop() as stop:
        schedule = Schedule(sweep, engine, command, source, [results, board])
        try:
            schedule.run(stop)
        finally:
            results.write()
    results.show()
    source.conclude(results.ended())
    if stop.number is not None:
        print("stopped; the same command goes on with it", flush=True)
        sys.exit(128 + stop.number)
    failed = [schedule.jobs[name] for name, state in schedule.states.items() if state.status not in ("done", "pruned")]
    if failed:
        raise refusal(failed, schedule)


def refusal(failed: list[Job], schedule: Schedule) -> VitlabError:
    """Make the error that a sweep with failed jobs ends with."""
    first = schedule.states[failed[0].name]
    log = schedule.sweep.home(failed[0].name) / "console.log"
    error = VitlabError(
        f"{len(failed)} of {len(schedule.jobs)} jobs of the sweep failed; {failed[0].name}: {first.reason} ({log})"
    )
    error.status = first.exit_status if first.exit_status and first.exit_status < 8 else 1
    return error
