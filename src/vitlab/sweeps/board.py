"""Show the states of a sweep's jobs: a live table on a terminal, else a line for each change."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vitlab.reports.sweep import build_column, format_score, format_value, shorten_keys
from vitlab.sweeps.folder import Job, State

ORDER = ("running", "lost", "failed", "killed", "waiting", "done", "pruned")  # what needs attention comes first
OTHER_LINES = 6  # of a terminal, beside the rows of the table


class Board:
    """A context that shows the changes passed to `update`."""

    def __init__(self, jobs: list[Job], states: dict[str, State], total: int | None = None):
        self.console = Console(soft_wrap=True)
        self.total = total
        self.jobs = {job.name: job for job in jobs}
        self.states = dict(states)
        self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.live.is_started:
            self.live.stop()

    def update(self, job: Job, state: State) -> None:
        self.jobs[job.name], self.states[job.name] = job, state
        if not self.console.is_terminal and state.status != "waiting":
            self.console.print(self.format_line(job, state), highlight=False, markup=False)

    def format_line(self, job: Job, state: State) -> str:
        ended = sum(state.status in ("done", "pruned") for state in self.states.values())
        score = f", {job.monitor} {format_score(job.monitor, state.score)}" if state.score is not None else ""
        why = f": {state.reason}" if state.reason else ""
        took = f" in {state.seconds:.0f} s" if state.status == "done" else ""
        return f"{ended} of {self.total or len(self.jobs)} done; {state.status} {job.name}{why}{score}{took}"

    def render(self) -> Group:
        return build_page(list(self.jobs.values()), self.states, self.console.height - OTHER_LINES)


def build_page(jobs: list[Job], states: dict[str, State], most: int | None = None) -> Group:
    """Build the line of counts and a table of up to `most` jobs."""
    return Group(count_states(states.values()), build_table(jobs, states, most))


def count_states(states: Iterable[State]) -> Text:
    """Format the number of jobs in each state as a line."""
    found = Counter[str](state.status for state in states)
    return Text(", ".join(f"{found[status]} {status}" for status in ORDER if found[status]) or "no jobs")


def build_table(jobs: list[Job], states: dict[str, State], most: int | None) -> Table:
    """Build a table of the jobs and the values that vary among them; jobs that need attention come first."""
    jobs = sorted(jobs, key=lambda job: (ORDER.index(states[job.name].status), job.number))
    monitors = sorted({job.monitor for job in jobs})
    values = [job.values for job in jobs]
    keys = dict.fromkeys(key for one in values for key in one)
    varying = [key for key in keys if len({one.get(key) for one in values}) > 1]
    heads = ["#", *shorten_keys(varying).values(), "status", *monitors, "starts", "seconds", "why"]
    table = Table(*map(build_column, heads), box=None, pad_edge=False)
    for job in jobs[:most]:
        state = states[job.name]
        running = time.time() - state.started if state.status == "running" and state.started else 0.0
        scores = [format_score(one, state.score) if job.monitor == one else "" for one in monitors]
        table.add_row(
            str(job.number),
            *(Text(format_value(job.values.get(key))) for key in varying),
            state.status,
            *scores,
            str(state.attempts or ""),
            f"{state.seconds + running:.0f}" if state.attempts else "",
            Text(state.reason or ""),
        )
    return table
