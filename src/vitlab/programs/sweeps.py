"""Show how far sweeps are, from their folders, which whoever runs them keeps up to date."""

import time
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.live import Live

from vitlab.checkpoints.run_folder import RUNS
from vitlab.errors import CheckpointError
from vitlab.reports.search import draw_sweep
from vitlab.spelling import suggest_name
from vitlab.sweeps.board import OTHER_LINES, build_page, count_states
from vitlab.sweeps.folder import SWEEP, SweepFolder
from vitlab.sweeps.results import Results

PAUSE = 2.0  # seconds between two looks


def tell(cfg: DictConfig) -> None:
    """Print the jobs of a sweep, or how far all sweeps are. Raises CheckpointError where there is no such sweep."""
    console = Console(soft_wrap=True)
    if cfg.sweep is None:
        for sweep in find_sweeps():
            console.print(line(sweep), highlight=False, markup=False)
        return
    sweep = find_sweep(cfg.sweep)
    states = sweep.states()
    if cfg.watch:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            while any(state.status in ("running", "waiting") for state in states.values()):
                live.update(build_page(sweep.jobs(), states, console.height - OTHER_LINES), refresh=True)
                time.sleep(PAUSE)
                states = sweep.states()
    console.print(build_page(sweep.jobs(), states))
    if cfg.pictures:
        Results(sweep).write()
        console.print(*draw_sweep(sweep.path, Results(sweep).list_ended(), sweep.scales()), sep="\n", highlight=False)
    console.print(f"tables and runs in {sweep.path}", highlight=False, markup=False)


def line(sweep: SweepFolder) -> str:
    """Say how far a sweep is, or why that cannot be said."""
    try:
        sweep.request()
        return f"{sweep.path}: {count_states(sweep.states().values())}"
    except CheckpointError as error:
        return str(error)


def find_sweeps() -> list[SweepFolder]:
    """Find all sweeps below runs/, the latest first."""
    paths = [*RUNS.glob(f"*/{SWEEP}"), *RUNS.glob(f"*/*/{SWEEP}")]
    return [SweepFolder(path.parent) for path in sorted(paths, key=lambda path: -path.stat().st_mtime)]


def find_sweep(name: str) -> SweepFolder:
    """Find the sweep of that name or folder. Raises CheckpointError."""
    for path in (RUNS / name, Path(name)):
        if (sweep := SweepFolder(path)).is_saved:
            sweep.request()
            return sweep
    known = [str(sweep.path.relative_to(RUNS)) for sweep in find_sweeps()]
    raise CheckpointError(f"there is no sweep {name}{suggest_name(name, known)}")
