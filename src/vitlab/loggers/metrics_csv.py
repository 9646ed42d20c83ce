"""metrics.csv: one row for each optimizer step at which something was logged."""

import csv
import os
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.atomic_files import write_csv


class MetricsCSV(Logger):
    """Rows survive a kill, and a resumed run goes on in the same file: rows after the step it resumes from are dropped.

    Lightning's CSVLogger deletes an existing file when it starts. Values logged at one step share a row. The file is
    appended to, and rewritten whole when a new name comes. Raises StorageError when its folder has gone.
    """

    def __init__(self, *, folder: str, first_step: int):
        super().__init__()
        self.path = Path(folder) / "metrics.csv"
        self.first_step = first_step
        self.rows: list[dict[str, Any]] = []
        self.columns = ["step"]
        self.started = False

    @property
    def name(self) -> str:
        return "metrics.csv"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The config stands in a file of its own."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if not self.started:
            self._start()
        row = {"step": step, **{name: float(value) for name, value in metrics.items()}}
        merge = bool(self.rows) and int(self.rows[-1]["step"]) == step
        if merge:
            self.rows[-1] |= row
        else:
            self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        self.columns += new
        if merge or new:
            self._rewrite()
        else:
            self._append(row)

    def _start(self) -> None:
        """Go on with the rows that are there up to the step the run resumes from."""
        self.started = True
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").replace("\0", "").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]  # a kill may have cut the last one
        rows = [numbers(row) for row in csv.DictReader(whole)]
        self.rows = [row for row in rows if 0 <= row.get("step", -1) <= self.first_step]
        self.columns = list(dict.fromkeys(["step", *(name for row in self.rows for name in row)]))
        self._rewrite()

    def _append(self, row: dict[str, Any]) -> None:
        try:
            with open(self.path, "r+", newline="", encoding="utf-8") as file:
                file.seek(0, os.SEEK_END)
                csv.writer(file).writerow([row.get(name) for name in self.columns])
        except FileNotFoundError:
            self._rewrite()

    def _rewrite(self) -> None:
        write_csv(self.path, self.columns, [[row.get(name) for name in self.columns] for row in self.rows])


def numbers(row: dict[str | None, Any]) -> dict[str, Any]:
    """What a row of the file holds that is a number."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        with suppress(TypeError, ValueError):
            if name is not None:
                found[name] = int(value) if name == "step" else float(value)
    return found
