"""Read what a run has recorded, and find what was changed afterwards, without computing anything again."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitlab.checkpoints import file
from vitlab.checkpoints.chain import CHAIN, Line, digest_file, read_chain
from vitlab.checkpoints.run_folder import CHECKPOINTS, LATEST
from vitlab.errors import AlteredError, CheckpointError
from vitlab.loggers.metrics_csv import Row, digest_row, read_rows
from vitlab.reports.run import read_result

CLOCK = ("train/images_per_second", "train/seconds", "train/peak_memory_mib")  # columns that no computation repeats


@dataclass(frozen=True)
class RecordedRun:
    """The folder of a run, and the lines of its chain."""

    folder: Path
    lines: list[Line]

    @cached_property
    def saved(self) -> dict[int, Line]:
        """Lines of the states, by their steps."""
        return {line["step"]: line for line in self.lines if "step" in line}

    @cached_property
    def best(self) -> dict[int, Line]:
        """Lines of the best models, by the steps of their weights."""
        return {line["best"]: line for line in self.lines if "best" in line}

    @cached_property
    def states(self) -> dict[int, Path]:
        """Files of the states that are still there, by their steps; the newest one among them."""
        folder = self.folder / CHECKPOINTS
        found = {int(path.stem.partition("_")[2]): path for path in folder.glob("step_[0-9]*.ckpt")}
        latest = folder / f"{LATEST[0]}.ckpt"
        if latest.is_file():
            found.setdefault(max(self.saved, default=0), latest)
        return {step: found[step] for step in sorted(found)}

    def find_start(self, step: int) -> Line:
        """Return the facts of the start that trained the steps up to this one."""
        return [line for line in self.lines if line.get("from_step", step) < step][-1]


def read_recorded(folder: Path) -> RecordedRun:
    """Read the chain of a run. Raises CheckpointError for a run without one, and AlteredError for a broken one."""
    path = folder / CHAIN
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {CHAIN}, which holds the digests of a run: it was trained by an earlier version"
        )
    try:
        return RecordedRun(folder, read_chain(path))
    except CheckpointError as error:
        raise AlteredError(str(error)) from None


def find_changes(run: RecordedRun) -> list[str]:
    """Say what differs from what the run recorded, in clauses; [] where nothing does."""
    found = [change for step, path in run.states.items() if (change := compare_file(path, run.saved.get(step), step))]
    best = run.folder / CHECKPOINTS / "best.ckpt"
    if best.is_file():
        found += compare_best(run, best)
    latest = run.folder / CHECKPOINTS / f"{LATEST[0]}.ckpt"
    if latest.is_file() and not found:
        found += compare_metrics(run.folder, file.read(latest)["callbacks"].get("MetricsCSV"))
    return found + compare_result(run)


def compare_file(path: Path, line: Line | None, step: int) -> str | None:
    """Say whether a checkpoint is another one than its line of the chain is about."""
    if line is None:
        return f"{path.name} is not in {CHAIN}"
    try:
        file.check_records(path)
        tensors, whole = digest_file(path)
    except CheckpointError as error:
        return str(error)
    if tensors != line["tensors"]:
        return f"{path.name} holds other tensors than the run saved at step {step}"
    return f"{path.name} is another file than the run saved at step {step}" if whole != line["file"] else None


def compare_best(run: RecordedRun, best: Path) -> list[str]:
    """Say whether the best model, or the result that names it, is another one than the run kept."""
    try:
        step = int(file.read(best)["global_step"])
    except CheckpointError as error:
        return [str(error)]
    change = compare_file(best, run.best.get(step), step)
    result = read_result(run.folder)
    if change is None and result is not None and result.get("best_step") != step:
        change = f"result.json names step {result.get('best_step')} as the best, and best.ckpt is of step {step}"
    return [change] if change else []


def compare_metrics(folder: Path, stored: dict[str, Any] | None) -> list[str]:
    """Name the steps whose rows in metrics.csv are not those that the newest state has stored digests of."""
    path = folder / "metrics.csv"
    if stored is None:
        return []
    if not path.is_file():
        return ["metrics.csv is missing"]
    last, rows = stored["last"], list(read_rows(path.read_bytes()))
    end = last.get("step", -1)
    known = {*stored["rows"].split(), *([digest_row(last)] if last else [])}
    digests = {
        digest_row({name: row.get(name) for name in last} if row.get("step") == end else row): row.get("step")
        for row in rows
        if row.get("step", -1) <= end
    }
    changed = sorted({str(step) for digest, step in digests.items() if digest not in known})
    missing = len(known - digests.keys())
    if changed:
        return [f"metrics.csv was edited in the row of step {', '.join(changed)}"]
    return [f"metrics.csv lacks {missing} of {len(known)} rows"] if missing else []


def compare_result(run: RecordedRun) -> list[str]:
    """Name the metrics of result.json that are not those that the run ended with."""
    result = read_result(run.folder)
    ends = [line for line in run.lines if "end" in line]
    if result is None:
        return ["result.json is missing"] if ends else []
    if not ends:
        return [f"{CHAIN} has no end, but result.json is there"]
    now = {"score": result["score"], **result["test"]}
    tested = {name: math.nan if value is None else value for name, value in ends[-1]["test"].items()}
    then = {"score": ends[-1]["score"], **tested}
    names = [name for name in then | now if str(then.get(name)) != str(now.get(name))]
    return [f"result.json says {name} {now.get(name)}, and the run ended with {then.get(name)}" for name in names]


def compare_rows(own: Path, other: Path, first: int, last: int) -> list[int]:
    """Return the steps after `first`, up to `last`, whose rows differ in two metrics.csv, but for what clocks say."""

    def read(path: Path) -> dict[int, Row]:
        rows = read_rows(path.read_bytes())
        return {row["step"]: row for row in rows if first < row.get("step", -1) <= last}

    ours, others = read(own), read(other)
    return [
        step
        for step, row in others.items()
        if any(ours.get(step, {}).get(name) != value for name, value in row.items() if name not in CLOCK)
    ]
