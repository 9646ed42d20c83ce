"""Work off the jobs of a sweep: submit what waits, record what has ended, or try it again."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from vitlab.sweeps.engine import Engine, Work
from vitlab.sweeps.folder import ENDED, Job, State, SweepFolder
from vitlab.sweeps.stop import Stop

LOOK = 0.5  # seconds that are waited for a job to end, before what else may have happened is looked at
ELSEWHERE = 2.0  # seconds between two looks at jobs that others are at work on
TRIES = 2  # how often a failing job is tried
MOST_STALLS = 3  # kills between which a job has saved nothing newer, after which it is not started again


class Source(Protocol):
    """New jobs: all at once, or one after the other, each in the light of those before it."""

    @property
    def more(self) -> bool:
        """Whether there is another one now."""
        ...

    def next(self) -> Job:
        """Freeze the next job."""
        ...

    def superfluous(self, job: Job) -> str | None:
        """Say why to end a running job early; None where it is to go on."""
        ...

    def note(self, job: Job, state: State) -> None:
        """Take note of a job's outcome."""
        ...

    @property
    def total(self) -> int | None:
        """Count the jobs there will be, where they are not all frozen yet."""
        ...

    def conclude(self, outcomes: list[dict[str, Any]]) -> None:
        """Say at the end what all jobs together show."""
        ...


class Watcher(Protocol):
    """Anything that is told of every change."""

    def changed(self, job: Job, state: State) -> None: ...


class Schedule:
    """The jobs of one start of a sweep, on one engine.

    A job that is killed goes on at once, unless it was killed three times without having got further. One that fails is
    tried again after the others: twice in all, and once more in each later start.
    """

    def __init__(self, sweep: SweepFolder, engine: Engine, command: list[str], source: Source, watchers: list[Watcher]):
        self.sweep = sweep
        self.engine = engine
        self.command = command
        self.source = source
        self.watchers = watchers
        self.jobs: dict[str, Job] = {}
        self.states: dict[str, State] = {}
        self.queue: deque[str] = deque()
        self.here: set[str] = set()  # jobs that the engine has
        self.kind = type(engine).__name__
        self.elsewhere: dict[str, bool] = {}  # jobs that an earlier start left at work, and whether on such an engine
        self.cancelled: dict[str, str | None] = {}  # jobs that are asked to end, and why
        self.tries: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.saved: dict[str, int | None] = {}
        self.looked = time.monotonic()
        for job in sweep.jobs():
            self._add(job)

    def run(self, stop: Stop) -> None:
        """Work off all jobs, or, once `stop` was asked for, end those that run."""
        while self.here or not stop.asked:
            if stop.asked:
                self._cancel(dict.fromkeys(self.here))
            else:
                self._submit()
                if not self.here and not self.queue and not self.elsewhere:
                    return
            for name in self.engine.poll(LOOK):
                self._ended(name, stop)
            self._look_elsewhere()
            reasons = {name: self.source.superfluous(self.jobs[name]) for name in self.here}
            self._cancel({name: reason for name, reason in reasons.items() if reason})

    def _add(self, job: Job) -> None:
        """Register a job, and decide what to do with it."""
        state = self.sweep.state(job.name)
        if state.status == "done" and not self.sweep.has_result(job.name):
            state = State()  # the user removed its run to have it done again
        self.jobs[job.name], self.states[job.name] = job, state
        self.tries[job.name] = TRIES - 1 if state.status == "failed" else 0
        if state.supervised:
            self.elsewhere[job.name] = self.sweep.engine(job.name) == self.kind
        elif state.status not in ENDED:
            self.queue.append(job.name)

    def _submit(self) -> None:
        """Hand the engine as many jobs as it has room for, beside those that it goes on with from an earlier start."""
        while (self.queue or self.source.more) and self.engine.free > sum(self.elsewhere.values()):
            if not self.queue:
                self._add(self.source.next())
            name = self.queue.popleft()
            self.saved[name] = self.sweep.saved_at(name)
            self.here.add(name)
            self.sweep.note_engine(name, self.kind)
            self.engine.submit(Work(name, self.command))
            self._note(name, replace(self.states[name], status="running", reason=None))

    def _cancel(self, reasons: Mapping[str, str | None]) -> None:
        for name in reasons.keys() - self.cancelled.keys():
            self.cancelled[name] = reasons[name]
            self.engine.cancel(name)

    def _ended(self, name: str, stop: Stop) -> None:
        """Record how a job has ended, and queue it again if it is to be restarted."""
        state = self.sweep.state(name)
        if state.status == "running":  # nobody was left to write how
            state = state.lost()
            self.sweep.write_state(name, state)
        if state.status == "killed" and name in self.cancelled and not stop.asked:
            state = replace(state, status="pruned", reason=self.cancelled[name])
            self.sweep.write_state(name, state)
        self.here.discard(name)
        self.cancelled.pop(name, None)
        if not stop.asked and self._again(name, state):
            self.queue.append(name) if state.status == "failed" else self.queue.appendleft(name)
        self._note(name, state)

    def _again(self, name: str, state: State) -> bool:
        if state.status == "failed":
            self.tries[name] += 1
            return self.tries[name] < TRIES
        further = self.sweep.saved_at(name) != self.saved[name]
        self.stalls[name] = 0 if further else self.stalls[name] + 1
        return state.status not in ENDED and self.stalls[name] < MOST_STALLS

    def _look_elsewhere(self) -> None:
        """Look at jobs that others were working on: those that have ended, and those to take over."""
        if time.monotonic() - self.looked < ELSEWHERE:
            return
        self.looked = time.monotonic()
        for name in list(self.elsewhere):
            state = self.sweep.state(name)
            if not state.supervised:
                del self.elsewhere[name]
                if state.status not in ENDED:
                    self.queue.append(name)
            self._note(name, state)

    def _note(self, name: str, state: State) -> None:
        self.states[name] = state
        self.source.note(self.jobs[name], state)
        for watcher in self.watchers:
            watcher.changed(self.jobs[name], state)
