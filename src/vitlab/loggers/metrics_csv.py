"""metrics.csv: one row for each optimizer step at which something was logged."""

import csv
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class MetricsCSV(Logger):
    """Rows survive a kill, and a resumed run goes on in the same file: rows after the step it resumes from are dropped.

    Lightning's CSVLogger deletes an existing file when it starts. Values logged at one step share a row. The file is
    appended to, and rewritten, by way of a temporary file, when a new name comes.
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
        if merge or new or not self.path.exists():
            self._rewrite()
        else:
            with open(self.path, "a", newline="") as file:
                csv.DictWriter(file, self.columns).writerow(row)

    def _start(self) -> None:
        self.started = True
        if self.path.exists():
            lines = self.path.read_text().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # a kill may have cut the last one
            rows = [row for row in csv.DictReader(whole) if row["step"].isdigit()]
            self.rows = [
                {name: float(value) for name, value in row.items() if value and name != "step"}
                | {"step": int(row["step"])}
                for row in rows
                if int(row["step"]) <= self.first_step
            ]
            self.columns = list(dict.fromkeys(["step", *(name for row in self.rows for name in row)]))
            self._rewrite()

    def _rewrite(self) -> None:
        temporary = self.path.with_suffix(".csv.new")
        with open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(temporary, self.path)
