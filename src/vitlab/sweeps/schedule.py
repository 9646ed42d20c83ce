"""Run the jobs of a sweep: submit them, record how they end, and restart those that failed or were killed."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vitlab.sweeps.engine import Engine, Work
from vitlab.sweeps.folder import ENDED, Job, State, SweepFolder
from vitlab.sweeps.stop import Stop

POLL_SECONDS = 0.5  # for which the engine waits for a job to end
ELSEWHERE_SECONDS = 2.0  # between two checks of jobs that an earlier start left running
MAX_TRIES = 2  # of a job that fails
MAX_STALLS = 3  # kills of a job without a newer checkpoint between them, after which it is given up

Watcher = Callable[[Job, State], None]  # called at every change


class JobSource:
    """Where new jobs come from while a sweep runs. This one has none: a grid saves all its jobs before the first one
    starts. A search decides on each job when there is room for it."""

    @property
    def has_more(self) -> bool:
        """Whether there is another job now."""
        return False

    @property
    def total(self) -> int | None:
        """Number of jobs the sweep will have; None if all of them are saved already."""
        return None

    def next(self) -> Job:
        """Save the next job and return it."""
        raise AssertionError("there are no more jobs")

    def reason_to_prune(self, job: Job) -> str | None:
        """Say why a running job should end early; None if it should continue."""
        return None

    def record(self, job: Job, state: State) -> None:
        """Take account of a job's new state."""

    def report(self, outcomes: list[dict[str, Any]]) -> None:
        """Print at the end what all jobs together show."""


class Schedule:
    """The jobs of one start of a sweep, on one engine.

    A killed job restarts at once, unless it was killed three times without a newer checkpoint. A failed job is tried
    again after the others: twice in all, and once more in each later start.
    """

    def __init__(
        self, sweep: SweepFolder, engine: Engine, command: list[str], source: JobSource, watchers: list[Watcher]
    ):
        self.sweep = sweep
        self.engine = engine
        self.command = command
        self.source = source
        self.watchers = watchers
        self.jobs: dict[str, Job] = {}
        self.states: dict[str, State] = {}
        self.queue: deque[str] = deque()
        self.submitted: set[str] = set()  # jobs that the engine has
        self.kind = type(engine).__name__
        self.elsewhere: dict[str, bool] = {}  # jobs that an earlier start left running; whether on the same engine
        self.cancelled: dict[str, str | None] = {}  # jobs that were asked to end, and why
        self.tries: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.saved: dict[str, int | None] = {}
        self.checked = time.monotonic()
        for job in sweep.jobs():
            self._add(job)

    def run(self, stop: Stop) -> None:
        """Run all jobs; once `stop` is requested, end those that run."""
        while self.submitted or not stop.requested:
            if stop.requested:
                self._cancel(dict.fromkeys(self.submitted))
            else:
                self._submit()
                if not self.submitted and not self.queue and not self.elsewhere:
                    return
            for name in self.engine.poll(POLL_SECONDS):
                self._end(name, stop)
            self._check_elsewhere()
            reasons = {name: self.source.reason_to_prune(self.jobs[name]) for name in self.submitted}
            self._cancel({name: reason for name, reason in reasons.items() if reason})

    def _add(self, job: Job) -> None:
        """Register a job, and queue it unless it has ended or runs elsewhere."""
        state = self.sweep.state(job.name)
        if state.status == "done" and not self.sweep.has_result(job.name):
            state = State()  # the user removed its run, so that it runs again
        self.jobs[job.name], self.states[job.name] = job, state
        self.tries[job.name] = MAX_TRIES - 1 if state.status == "failed" else 0
        if state.is_supervised:
            self.elsewhere[job.name] = self.sweep.engine(job.name) == self.kind
        elif state.status not in ENDED:
            self.queue.append(job.name)

    def _submit(self) -> None:
        """Submit as many jobs as the engine has room for, beside those that still run from an earlier start."""
        while (self.queue or self.source.has_more) and self.engine.free > sum(self.elsewhere.values()):
            if not self.queue:
                self._add(self.source.next())
            name = self.queue.popleft()
            self.saved[name] = self.sweep.find_save_time(name)
            self.submitted.add(name)
            self.sweep.write_engine(name, self.kind)
            self.engine.submit(Work(name, self.command))
            self._record(name, replace(self.states[name], status="running", reason=None))

    def _cancel(self, reasons: Mapping[str, str | None]) -> None:
        for name in reasons.keys() - self.cancelled.keys():
            self.cancelled[name] = reasons[name]
            self.engine.cancel(name)

    def _end(self, name: str, stop: Stop) -> None:
        """Record how a job has ended, and queue it again if it is to restart."""
        state = self.sweep.state(name)
        if state.status == "running":  # its supervisor died before it recorded the end
            state = state.mark_lost()
            self.sweep.write_state(name, state)
        if state.status == "killed" and name in self.cancelled and not stop.requested:
            state = replace(state, status="pruned", reason=self.cancelled[name])
            self.sweep.write_state(name, state)
        self.submitted.discard(name)
        self.cancelled.pop(name, None)
        if not stop.requested and self._is_to_restart(name, state):
            self.queue.append(name) if state.status == "failed" else self.queue.appendleft(name)
        self._record(name, state)

    def _is_to_restart(self, name: str, state: State) -> bool:
        if state.status == "failed":
            self.tries[name] += 1
            return self.tries[name] < MAX_TRIES
        progressed = self.sweep.find_save_time(name) != self.saved[name]
        self.stalls[name] = 0 if progressed else self.stalls[name] + 1
        return state.status not in ENDED and self.stalls[name] < MAX_STALLS

    def _check_elsewhere(self) -> None:
        """Check the jobs that an earlier start left running: queue those that lost their supervisor."""
        if time.monotonic() - self.checked < ELSEWHERE_SECONDS:
            return
        self.checked = time.monotonic()
        for name in list(self.elsewhere):
            state = self.sweep.state(name)
            if not state.is_supervised:
                del self.elsewhere[name]
                if state.status not in ENDED:
                    self.queue.append(name)
            self._record(name, state)

    def _record(self, name: str, state: State) -> None:
        self.states[name] = state
        self.source.record(self.jobs[name], state)
        for watcher in self.watchers:
            watcher(self.jobs[name], state)
