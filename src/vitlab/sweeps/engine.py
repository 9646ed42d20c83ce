"""Define what runs the jobs of a sweep: an engine with submit, poll and cancel."""

from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True)
class Work:
    """A job for an engine: its name in the sweep, and the words of the command that starts or resumes it."""

    name: str
    command: list[str]


class Engine(Protocol):
    """Runs jobs of one sweep, each under a supervisor that keeps the job's state on disk. Entered before it is used; on
    leaving, jobs that still run are ended, each with its state saved."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...

    @property
    def free(self) -> int:
        """Count the jobs that it would take now."""
        ...

    def submit(self, work: Work) -> None:
        """Take a job."""
        ...

    def poll(self, seconds: float) -> list[str]:
        """Wait for at most that long; return the names of jobs that have ended, or whose supervisor is gone."""
        ...

    def cancel(self, name: str) -> None:
        """End a job, its state saved; `poll` returns it once it has ended."""
        ...
