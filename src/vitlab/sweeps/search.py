"""Random search: a job is composed and saved when there is room for it."""

import random
from collections.abc import Callable
from typing import Any

from vitlab.errors import ConfigError
from vitlab.sweeps.folder import Job, State, SweepFolder
from vitlab.sweeps.schedule import JobSource
from vitlab.sweeps.space import Axis

MAX_REFUSED = 3  # refused jobs after which no more start, if no job was accepted
Compose = Callable[[int, list[str]], tuple[Job, bytes]]


class RandomSearch(JobSource):
    """Jobs with random values, which depend on the seed and the job's number alone."""

    def __init__(self, sweep: SweepFolder, compose: Compose, *, axes: list[Axis], num_trials: int, seed: int):
        self.sweep = sweep
        self.compose = compose
        self.axes = axes
        self.num_trials = num_trials
        self.seed = seed
        self.refused: dict[int, bool] = {}  # by the number of a job that has ended
        self.number = self.first = max((job.number + 1 for job in sweep.jobs()), default=0)

    @property
    def has_more(self) -> bool:
        return self.number < self.num_trials and not self.is_hopeless

    @property
    def is_hopeless(self) -> bool:
        """Whether at least MAX_REFUSED jobs of this start have ended, all of them refused."""
        return len(self.refused) >= MAX_REFUSED and all(self.refused.values())

    @property
    def total(self) -> int:
        return max(self.num_trials, self.number)

    def next(self) -> Job:
        job, config = self.compose(self.number, self.overrides(self.number))
        self.sweep.add(job, config)
        self.number += 1
        return job

    def overrides(self, number: int) -> list[str]:
        """Choose the values of a job, as overrides."""
        rng = random.Random(f"{self.seed}/{number}")
        return [axis.override(axis.draw(rng)) for axis in self.axes]

    def record(self, job: Job, state: State) -> None:
        """Note whether a job that has ended was refused."""
        if job.number >= self.first and state.status in ("done", "pruned", "failed"):
            self.refused[job.number] = state.status == "failed" and state.exit_status == ConfigError.status

    def report(self, outcomes: list[dict[str, Any]]) -> None:
        if self.is_hopeless:
            print(
                f"\nall {len(self.refused)} new jobs were refused, so no more were started: repeat the command to "
                "try others, or vary other keys under another sweep=NAME"
            )
