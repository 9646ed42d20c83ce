"""Keep what a fit has found so far in fit.json of its folder, so that the same command continues a killed one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.atomic_files import write_json
from vitlab.errors import CheckpointError
from vitlab.trials.budget import Budget

FILE = "fit.json"


class Ledger:
    """The stages of a fit in `folder`, by name, each as plain types, and the seconds spent when the last one ended."""

    def __init__(self, folder: Path, budget: Budget):
        self.folder = folder
        self.budget = budget
        self.content: dict[str, Any] = read_ledger(folder)
        budget.add_before(float(self.content.get("seconds", 0.0)))

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def keep(self, name: str, value: Any) -> None:
        """Store what a stage has found, and the time so far."""
        self.content |= {name: value, "seconds": round(self.budget.spent, 2)}
        write_json(self.folder / FILE, self.content)

    def find(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what a stage has found: from an earlier start, or by its work now."""
        if name not in self:
            self.keep(name, work())
        return self[name]


def read_ledger(folder: Path) -> dict[str, Any]:
    """Read fit.json of a folder; {} where there is none. Raises CheckpointError for a damaged one."""
    path = folder / FILE
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or not isinstance(content.get("arguments"), dict):
            raise ValueError("no arguments")
        return content
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged; remove {folder}, or begin again with overwrite=true") from error
