"""Show how far sweeps are, from their folders, which whoever runs them keeps up to date."""

import time
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.live import Live

from vitlab.errors import CheckpointError
from vitlab.reports.search import draw
from vitlab.spelling import instead_of
from vitlab.sweeps.board import AROUND, counts, pages
from vitlab.sweeps.folder import SWEEP, SweepFolder
from vitlab.sweeps.results import Results

RUNS = Path("runs")
PAUSE = 2.0  # seconds between two looks


def tell(cfg: DictConfig) -> None:
    """Print the jobs of a sweep, or how far all sweeps are. Raises CheckpointError where there is no such sweep."""
    console = Console(soft_wrap=True)
    if cfg.sweep is None:
        for sweep in found():
            console.print(line(sweep), highlight=False, markup=False)
        return
    sweep = named(cfg.sweep)
    states = sweep.states()
    if cfg.watch:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            while any(state.status in ("running", "waiting") for state in states.values()):
                live.update(pages(sweep.jobs(), states, console.height - AROUND), refresh=True)
                time.sleep(PAUSE)
                states = sweep.states()
    console.print(pages(sweep.jobs(), states))
    if cfg.pictures:
        Results(sweep).write()
        console.print(*draw(sweep.path, Results(sweep).ended(), sweep.scales()), sep="\n", highlight=False)
    console.print(f"tables and runs in {sweep.path}", highlight=False, markup=False)


def line(sweep: SweepFolder) -> str:
    """Say how far a sweep is, or why that cannot be said."""
    try:
        sweep.request()
        return f"{sweep.path}: {counts(sweep.states().values())}"
    except CheckpointError as error:
        return str(error)


def found() -> list[SweepFolder]:
    """Find all sweeps below runs/, the latest first."""
    paths = [*RUNS.glob(f"*/{SWEEP}"), *RUNS.glob(f"*/*/{SWEEP}")]
    return [SweepFolder(path.parent) for path in sorted(paths, key=lambda path: -path.stat().st_mtime)]


def named(name: str) -> SweepFolder:
    """Find the sweep of that name or folder. Raises CheckpointError."""
    for path in (RUNS / name, Path(name)):
        if (sweep := SweepFolder(path)).frozen:
            sweep.request()
            return sweep
    known = [str(sweep.path.relative_to(RUNS)) for sweep in found()]
    raise CheckpointError(f"there is no sweep {name}{instead_of(name, known)}")
