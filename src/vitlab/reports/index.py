"""Index the runs below a folder: settings and results of each, kept in a small database so that ten thousand are read
in a second. Files decide: a run whose config or result has changed is read again, and one that is gone is forgotten."""

import json
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.progress import track

from vitlab.atomic_files import compute_digest
from vitlab.checkpoints.run_folder import CONFIG, DEPTHS
from vitlab.errors import CheckpointError
from vitlab.machine import make_cache_folder
from vitlab.reports.finished import flatten_values
from vitlab.reports.run import RESULT, read_result, read_set_keys

TABLE = "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, stamp TEXT, content TEXT)"
FORM = 2  # of the content, which an older database does not have
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class IndexedRun:
    """A run's folder, whether it has ended, and its values: settings by their dotted keys, test metrics, `score`,
    `steps` and `seconds`. The user has set `set_keys`."""

    folder: Path
    ended: bool
    values: dict[str, Any]
    set_keys: tuple[str, ...] = ()


def index_runs(root: Path) -> list[IndexedRun]:
    """Read all runs below a folder, the newest first. Raises CheckpointError for a folder that does not exist."""
    if not root.is_dir():
        raise CheckpointError(f"there is no folder {root}; name one that holds runs")
    stamps = dict(sorted(find_stamps(root), key=lambda one: -one[1][1]))
    known = read_known(root)
    fresh = {path: known[path][1] for path, stamp in stamps.items() if known.get(path, ("",))[0] == format_stamp(stamp)}
    missing = [path for path in stamps if path not in fresh]
    for path in track(missing, description="reading runs", transient=True) if len(missing) > 100 else missing:
        fresh[path] = read_values(root / path)
    if missing or known.keys() - stamps.keys():
        keep(root, {path: (format_stamp(stamps[path]), fresh[path]) for path in stamps})
    found = [(path, fresh[path]) for path in stamps]
    return [IndexedRun(root / path, one["ended"], one["values"], tuple(one["set_keys"])) for path, one in found]


def find_stamps(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield the folder of each run below the root, and what changes when its files do. Loggers and the jobs of a sweep
    also keep a config.yaml, but no provenance.json."""
    for place in (file for depth in DEPTHS for file in root.glob(f"{depth}{CONFIG}")):
        if not place.with_name("provenance.json").is_file():
            continue
        stamp = [FORM]
        for file in (place, place.with_name(RESULT)):
            try:
                status = os.stat(file)
                stamp += [status.st_mtime_ns, status.st_size]
            except OSError:
                stamp += [0, 0]
        yield str(place.parent.relative_to(root)), tuple(stamp)


def read_values(folder: Path) -> dict[str, Any]:
    """Read a run's values; of a damaged file nothing."""
    values: dict[str, Any] = {}
    with suppress(OSError, yaml.YAMLError, AttributeError):
        values = flatten_values(
            yaml.load((folder / CONFIG).read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        )
    try:
        result = read_result(folder)
    except CheckpointError:
        result = None
    found = result or {}
    values |= {key: found[key] for key in ("score", "steps", "seconds") if found.get(key) is not None}
    values |= {key: value for key, value in found.get("test", {}).items() if math.isfinite(value)}
    values = json.loads(json.dumps(values, default=str))
    return {"ended": result is not None, "values": values, "set_keys": sorted(read_set_keys(folder))}


# -- the database


def database(root: Path) -> Path | None:
    folder = make_cache_folder("runs")
    return folder and folder / f"{compute_digest(os.fsencode(root.resolve()))}.sqlite"


def read_known(root: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Read what was kept; nothing where there is no database, or a damaged one."""
    path = database(root)
    if path is None or not path.exists():
        return {}
    try:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT path, stamp, content FROM runs").fetchall()
        return {name: (stamp, json.loads(content)) for name, stamp, content in rows}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


def keep(root: Path, runs: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Replace what is kept. Without a place to keep it the next call reads all again."""
    path = database(root)
    if path is None:
        return
    rows = [(name, stamp, json.dumps(content)) for name, (stamp, content) in runs.items()]
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(TABLE)
            connection.execute("DELETE FROM runs")
            connection.executemany("INSERT INTO runs VALUES (?, ?, ?)", rows)
    except sqlite3.DatabaseError:
        path.unlink(missing_ok=True)  # damaged: the next call writes it anew
    except sqlite3.Error:
        return


def format_stamp(stamp: Stamp) -> str:
    return " ".join(map(str, stamp))
