"""metrics.csv: one row for each optimizer step at which something was logged."""

import csv
import io
import os
from argparse import Namespace
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.atomic_files import LineFeeds, compute_digest, set_aside, write_csv
from vitlab.errors import CheckpointError
from vitlab.loggers.run_logger import RunLogger

Row = dict[str, Any]


class MetricsCSV(RunLogger, Callback):
    """Rows survive a kill, and a resumed run goes on in the same file: rows after the step it resumes from are dropped.

    Lightning's CSVLogger deletes an existing file when it starts. Values logged at one step share a row, and rows
    stand in the order of their steps. The file is appended to, and rewritten whole when a new name or an earlier step
    comes. Raises StorageError when its folder has gone.

    As a callback it stores in each state the digests of the rows logged before it. A resume keeps the rows that match;
    if any is missing, or others are there, it prints a sentence and keeps the file as metrics.damaged.csv.
    """

    def __init__(self, *, folder: str, first_step: int):
        super().__init__()
        self.path = Path(folder) / "metrics.csv"
        self.first_step = first_step
        self.rows: list[Row] = []
        self.digests: list[str] = []  # of all rows but the last one, which may still grow
        self.columns = ["step"]
        self.known: dict[str, Any] | None = None  # what the state stored that the run resumes from
        self.started = False
        self.trainer: pl.Trainer | None = None

    @property
    def name(self) -> str:
        return "metrics.csv"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The config has its own file."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.trainer = trainer
        self._start()

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log values of a step. What Lightning logs, for a callback that calls `pl_module.log`, has the number of the
        last batch counted from 0: it belongs to the step that this batch made, whose epoch is known better."""
        self._start()
        if self.trainer is not None and step in (None, self.trainer.global_step - 1):
            step = self.trainer.global_step
            metrics = {name: value for name, value in metrics.items() if name != "epoch"}
        step = step or 0
        row = {"step": step, **{name: float(value) for name, value in metrics.items()}}
        place = bisect_right(self.rows, step, key=lambda one: int(one["step"]))  # behind what is of this step or before
        last = place == len(self.rows)
        merge = place > 0 and int(self.rows[place - 1]["step"]) == step
        if merge:
            self.rows[place - 1] |= row
        elif last:
            self.digests += map(digest_row, self.rows[-1:])
            self.rows.append(row)
        else:
            self.rows.insert(place, row)
        if not last:
            self.digests = [digest_row(one) for one in self.rows[:-1]]
        new = [name for name in row if name not in self.columns]
        self.columns += new
        if merge or new or not last:
            self._rewrite()
        else:
            self._append(row)

    def state_dict(self) -> dict[str, Any]:
        """Flush the rows to the disk; return the digests of all but the last, and the last row itself."""
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            os.fsync(file.fileno())
        return {"rows": " ".join(self.digests), "last": dict(self.rows[-1]) if self.rows else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what the state stored, for `_start`. Raises CheckpointError for a damaged state."""
        rows, last = state_dict["rows"], state_dict["last"]
        whole = isinstance(rows, str) and isinstance(last, dict) and all(isinstance(name, str) for name in last)
        if not whole or (last and not isinstance(last.get("step"), int)):
            raise CheckpointError(f"the checkpoint is damaged: callbacks.MetricsCSV is {state_dict!r:.80}")
        self.known = state_dict

    @rank_zero_only
    def _start(self) -> None:
        """Go on with the rows that are there up to the step the run resumes from."""
        if self.started:
            return
        self.started = True
        content = self.path.read_bytes() if self.path.exists() else b""
        rows = [row for row in read_rows(content) if row.get("step", -1) <= self.first_step]
        if self.known is None:
            self.rows = [row for row in rows if row.get("step", -1) >= 0]
        else:
            self.rows = self._match_rows(rows, self.known["rows"].split(), self.known["last"])
        self.digests = [digest_row(row) for row in self.rows[:-1]]
        self.columns = list(dict.fromkeys(["step", *(name for row in self.rows for name in row)]))
        if content or self.rows:
            self._rewrite()

    def _match_rows(self, rows: list[Row], digests: list[str], last: Row) -> list[Row]:
        """Return the rows that the state stored, in the order of their steps, and what was logged at the state's step
        after it was saved, as the metrics of the test are. The last row may have grown since, and is restored if it is
        missing."""
        known = {*digests, digest_row(last)} if last else set(digests)
        missing, kept = set(known), []
        for row in rows:
            step = row.get("step", -1)
            digest = digest_row({name: row.get(name) for name in last} if step == last.get("step") else row)
            if digest in missing or step == self.first_step != last.get("step"):
                missing.discard(digest)
                kept.append(row)
        others = len(rows) - len(kept)
        if last and digest_row(last) in missing:
            kept.append(last)
        if missing or others:
            aside = f", and the old file is now {set_aside(self.path).name}" if self.path.exists() else ""
            print(
                f"{self.path} was changed after the run saved step {self.first_step}: {len(missing)} of {len(known)} "
                f"rows are missing or changed, and {others} belong to another run; {len(kept)} are kept{aside}",
                flush=True,
            )
        return sorted(kept, key=lambda row: int(row["step"]))

    def _append(self, row: Row) -> None:
        try:
            with open(self.path, "r+", newline="", encoding="utf-8") as file:
                file.seek(0, os.SEEK_END)
                csv.writer(LineFeeds(file)).writerow([row.get(name) for name in self.columns])
        except FileNotFoundError:
            self._rewrite()

    def _rewrite(self) -> None:
        write_csv(self.path, self.columns, [[row.get(name) for name in self.columns] for row in self.rows])


def digest_row(row: Row) -> str:
    return compute_digest(repr(sorted(row.items())).encode())


def read_rows(content: bytes) -> Iterator[Row]:
    """Yield the rows of the file's whole lines, and an empty one for each that was not written so. A kill may have cut
    the last line."""
    text = content[: content.rfind(b"\n") + 1].decode("utf-8-sig", "replace").replace("\0", "")
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        names = next(lines, [])
        yield from (read_row(names, cells) for cells in lines if cells)
    except csv.Error:  # a field without an end
        yield {}


def read_row(names: list[str], cells: list[str]) -> Row:
    """Read the numbers of a row; nothing of one that holds anything else, or has no step."""
    try:
        row: Row = {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}
        return {**row, "step": int(row["step"])}
    except (ValueError, LookupError, OverflowError):
        return {}
