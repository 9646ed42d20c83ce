"""Show what the jobs of a sweep are doing: a live table on a terminal, else a line for each change."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vitlab.reports.sweep import column, of, short_names, shown
from vitlab.sweeps.folder import Job, State

ORDER = (
    "running",
    "lost",
    "failed",
    "killed",
    "waiting",
    "done",
    "pruned",
)  # what somebody may want to look at comes first
AROUND = 6  # lines of a terminal that are not rows of the table
SPOKEN = ("running", "done", "failed", "killed", "lost", "pruned")


class Board:
    """Shows every change it is told of while it is entered."""

    def __init__(self, jobs: list[Job], states: dict[str, State], total: int | None = None):
        self.console = Console(soft_wrap=True)
        self.total = total
        self.jobs = {job.name: job for job in jobs}
        self.states = dict(states)
        self.live = Live(get_renderable=self.shown, console=self.console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.live.is_started:
            self.live.stop()

    def changed(self, job: Job, state: State) -> None:
        self.jobs[job.name], self.states[job.name] = job, state
        if not self.console.is_terminal and state.status in SPOKEN:
            self.console.print(self.line(job, state), highlight=False, markup=False)

    def line(self, job: Job, state: State) -> str:
        ended = sum(state.status in ("done", "pruned") for state in self.states.values())
        score = f", {job.monitor} {of(job.monitor, state.score)}" if state.score is not None else ""
        why = f": {state.reason}" if state.reason else ""
        took = f" in {state.seconds:.0f} s" if state.status == "done" else ""
        return f"{ended} of {self.total or len(self.jobs)} done; {state.status} {job.name}{why}{score}{took}"

    def shown(self) -> Group:
        return pages(list(self.jobs.values()), self.states, self.console.height - AROUND)


def pages(jobs: list[Job], states: dict[str, State], most: int | None = None) -> Group:
    """Count the jobs of each status, and list up to `most` of them."""
    return Group(counts(states.values()), table(jobs, states, most))


def counts(states: Iterable[State]) -> Text:
    """Write the number of jobs of each status in a line."""
    found = Counter[str](state.status for state in states)
    return Text(", ".join(f"{found[status]} {status}" for status in ORDER if found[status]) or "no jobs")


def table(jobs: list[Job], states: dict[str, State], most: int | None) -> Table:
    """List the jobs by what varies among them, those first that need attention."""
    jobs = sorted(jobs, key=lambda job: (ORDER.index(states[job.name].status), job.number))
    monitors = sorted({job.monitor for job in jobs})
    given = [job.given for job in jobs]
    keys = dict.fromkeys(key for one in given for key in one)
    varying = [key for key in keys if len({one.get(key) for one in given}) > 1]
    heads = ["#", *short_names(varying).values(), "status", *monitors, "starts", "seconds", "why"]
    found = Table(*map(column, heads), box=None, pad_edge=False)
    for job in jobs[:most]:
        state = states[job.name]
        running = time.time() - state.started if state.status == "running" and state.started else 0.0
        scores = [of(one, state.score) if job.monitor == one else "" for one in monitors]
        found.add_row(
            str(job.number),
            *(Text(shown(job.given.get(key))) for key in varying),
            state.status,
            *scores,
            str(state.attempts or ""),
            f"{state.seconds + running:.0f}" if state.attempts else "",
            Text(state.reason or ""),
        )
    return found
