"""Report what became of every tensor when weights came into a model."""

from collections import Counter
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from vitlab.atomic_files import write_csv

Status = Literal["copied", "resized", "initialised anew", "left over"]
STATUSES: tuple[Status, ...] = ("copied", "resized", "initialised anew", "left over")


@dataclass(frozen=True)
class Entry:
    """One tensor: its shape in the source and in the model, each empty where it is missing, and why."""

    tensor: str
    status: Status
    source_shape: str
    model_shape: str
    note: str = ""


@dataclass
class Report:
    """All tensors of the model, then those of the source that it did not take. `assumed` is what the model computes
    with and the source does not state."""

    origin: str
    form: str
    entries: list[Entry] = field(default_factory=list)
    assumed: dict[str, Any] = field(default_factory=dict)

    def counts(self) -> dict[Status, int]:
        found = Counter(entry.status for entry in self.entries)
        return {status: found[status] for status in STATUSES}

    def save(self, path: Path) -> None:
        """Write a CSV, a line for each tensor, then one for each thing that was assumed."""
        lines = [astuple(entry) for entry in self.entries]
        note = "as the model has it; the source does not state it"
        lines += [(key, "assumed", "", "", f"{value}, {note}") for key, value in self.assumed.items()]
        write_csv(path, [column.name for column in fields(Entry)], lines)

    def show(self) -> None:
        """Print the counts, and every tensor that was not simply copied."""
        console = Console(soft_wrap=True, highlight=False)
        counts = ", ".join(f"{count} {status}" for status, count in self.counts().items() if count)
        console.print(f"weights from {self.origin} ({self.form}): {counts}")
        if self.assumed:
            stated = ", ".join(f"{key} {value}" for key, value in self.assumed.items())
            console.print(f"not stated by the source, assumed from the model: {stated}")
        others = [entry for entry in self.entries if entry.status != "copied"]
        if others:
            table = Table("tensor", "became", "source", "model", "note", box=None, pad_edge=False)
            for entry in others:
                table.add_row(entry.tensor, entry.status, entry.source_shape, entry.model_shape, entry.note)
            console.print(table)
