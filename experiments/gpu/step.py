"""What a step of the proof is given, and what it says in the end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scale import Scale


@dataclass(frozen=True)
class Assignment:
    """`folder` is for what a step makes and nobody wants later, `kept` for what goes with the report. `seconds` it may
    take. `cifar10` is the folder of its images, if there is one."""

    scale: Scale
    folder: Path
    kept: Path
    seconds: float
    cifar10: Path | None


class Found(NamedTuple):
    """One line, all figures by their names, and lines of Markdown for the report."""

    figure: str
    figures: dict[str, Any]
    lines: tuple[str, ...] = ()


class UnavailableError(Exception):
    """A step cannot be done here, and why."""
