"""Search: jobs that do not all exist from the start, each frozen when there is room for it."""

import random
from collections.abc import Callable
from typing import Any

from vitlab.errors import ConfigError
from vitlab.sweeps.folder import Job, State, SweepFolder
from vitlab.sweeps.space import Axis

REFUSED = 3  # jobs after which no more are begun, if all of them were refused
Compose = Callable[[int, list[str]], tuple[Job, bytes]]


class RandomSearch:
    """Jobs at random places. The place of a job is a function of the seed and its number alone."""

    def __init__(self, sweep: SweepFolder, compose: Compose, *, axes: list[Axis], num_trials: int, seed: int):
        self.sweep = sweep
        self.compose = compose
        self.axes = axes
        self.num_trials = num_trials
        self.seed = seed
        self.refused: dict[int, bool] = {}  # by the number of a job that has ended
        self.number = self.first = max((job.number + 1 for job in sweep.jobs()), default=0)

    @property
    def more(self) -> bool:
        return self.number < self.num_trials and not self.hopeless

    @property
    def hopeless(self) -> bool:
        """Whether all jobs that this start has begun and ended were refused, and they are some."""
        return len(self.refused) >= REFUSED and all(self.refused.values())

    def next(self) -> Job:
        """Freeze the next job."""
        job, config = self.compose(self.number, self.words(self.number))
        self.sweep.add(job, config)
        self.number += 1
        return job

    def words(self, number: int) -> list[str]:
        """Give the overrides of a job."""
        chosen = random.Random(f"{self.seed}/{number}")
        return [axis.word(axis.drawn(chosen)) for axis in self.axes]

    @property
    def total(self) -> int:
        return max(self.num_trials, self.number)

    def superfluous(self, job: Job) -> str | None:
        return None

    def note(self, job: Job, state: State) -> None:
        """Take note of whether a job that has ended was refused."""
        if job.number >= self.first and state.status in ("done", "pruned", "failed"):
            self.refused[job.number] = state.status == "failed" and state.exit_status == ConfigError.status

    def conclude(self, outcomes: list[dict[str, Any]]) -> None:
        if self.hopeless:
            print(
                f"\nall {len(self.refused)} new jobs were refused, so that no more were begun: type the same again to "
                "try others, or vary something else under another sweep=NAME"
            )
