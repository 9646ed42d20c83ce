"""Find, compare, archive and remove runs below a folder."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from vitlab.atomic_files import write_csv
from vitlab.checkpoints.run_lock import LOCK, is_in_use, leave, take
from vitlab.config.found import OPEN_KEYS
from vitlab.errors import CheckpointError, ConfigError, StorageError
from vitlab.monitors import better, format_metric
from vitlab.reports.index import IndexedRun, index_runs
from vitlab.reports.selection import differing, full_key, order, select
from vitlab.reports.tables import print_table
from vitlab.run.storage.output import check_ending, check_place, output_file
from vitlab.spelling import format_count

OF_A_RUN = ("run", "state", "score", "steps", "seconds")  # values that are not settings
NOT_TOLD = ("name", "resume", "break_lock", *(f"found.{key}" for key in OPEN_KEYS))
MOST_COLUMNS = 4  # of settings in which the runs differ


def runs(cfg: DictConfig) -> list[Path]:
    """List the runs for which `where` holds, or move or remove them; return their folders."""
    if cfg.archive is not None and cfg.rm:
        raise ConfigError("archive= and rm=true cannot both be given; leave out one of them")
    if (cfg.archive is not None or cfg.rm) and not cfg.where:
        raise ConfigError("rm=true and archive= need where=; say which runs: where=KEY=VALUE")
    conditions = cfg.where.strip("[] ").split(",") if cfg.where else []
    indexed = index_runs(Path(cfg.root))
    known = [replace(run, values={"run": str(run.folder), "state": state(run), **run.values}) for run in indexed]
    found = select(known, conditions)
    if cfg.sort is not None and found:
        key = full_key(found, cfg.sort)
        found = order(found, key, best_first="/" in key and better(key) == "max")
    if cfg.rm:
        return change(found, shutil.rmtree, "removed")
    if cfg.archive is not None:
        check_place(cfg.archive, "runs", key="archive")
        return change(found, lambda folder: move(folder, Path(cfg.root), Path(cfg.archive)), f"moved to {cfg.archive}")
    show(cfg, found)
    return [run.folder for run in found]


def show(cfg: DictConfig, found: Sequence[IndexedRun]) -> None:
    """Print a table, or write it to a file: the monitored score, what was sorted by, and settings that differ."""
    given = [full_key(found, key) for key in (cfg.columns or [])]
    asked = [full_key(found, cfg.sort)] if cfg.sort is not None and found else []
    own = [key for key in differing(found) if is_setting(key)]
    settings = given or own[:MOST_COLUMNS]
    columns = list(dict.fromkeys([*asked, *settings]))
    rows = [[run.values["run"], run.values["state"], score(run), *(cell(run, k) for k in columns)] for run in found]
    header = ["run", "state", "score", *columns]
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if cfg.output is not None:
        output = output_file(cfg.output, "runs", Path(), "runs.csv", overwrite=cfg.overwrite)
        check_ending(output.path, (".csv",))
        path = output.make()
        write_csv(path, header, rows)
        console.print(f"{format_count(len(rows), 'run')} in {path}")
        return
    print_table(header, rows[: cfg.most])
    hidden = len(own) - len(settings) if not given else 0
    told = f"; they differ in {hidden} more settings: columns=[…]" if hidden > 0 else ""
    cut = ", the first shown" if len(rows) > cfg.most else ""
    console.print(f"{format_count(len(found), 'run')} below {cfg.root}{cut}{told}")


def is_setting(key: str) -> bool:
    return "/" not in key and key not in (*OF_A_RUN, *NOT_TOLD)


def state(run: IndexedRun) -> str:
    return "running" if is_in_use(run.folder) else "ended" if run.ended else "stopped"


def score(run: IndexedRun) -> str:
    value = run.values.get("score")
    monitor = str(run.values.get("monitor"))
    return "" if value is None else f"{monitor} {format_metric(monitor, value)}"


def cell(run: IndexedRun, key: str) -> str:
    value = run.values.get(key)
    return "" if value is None else format_metric(key, value) if "/" in key else str(value)


def change(found: Sequence[IndexedRun], do: Callable[[Path], Any], told: str) -> list[Path]:
    """Do something to each run that nobody uses. Raises CheckpointError, with the others done, where one is in use."""
    done, busy = [], []
    for run in found:
        try:
            take(run.folder, break_lock=False)
        except CheckpointError:
            busy.append(run.folder)
            continue
        try:
            do(run.folder)
        except OSError as error:
            raise StorageError(f"{run.folder} cannot be {told}: {error.strerror}") from error
        finally:
            leave(run.folder)
        done.append(run.folder)
        print(f"{run.folder} {told}", flush=True)
    if busy:
        raise CheckpointError(f"{', '.join(map(str, busy))}: in use, and not changed; wait until it ends, or stop it")
    return done


def move(folder: Path, root: Path, archive: Path) -> None:
    """Move a run to its place below another folder, which it must not have there yet."""
    place = archive / folder.relative_to(root)
    if place.exists():
        raise StorageError(f"{place} exists already; name another archive=")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, place)
    (place / LOCK).unlink(missing_ok=True)  # of this command
