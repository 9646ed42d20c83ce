"""Read finished runs for comparing them: results, configs, and what each test sample was taken for."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vitlab.errors import CheckpointError
from vitlab.reports.run import read_result, read_set_keys


@dataclass(frozen=True)
class FinishedRun:
    """A run that has been tested.

    `settings` are the values of its config by their dotted keys, of which the user has `set_keys`; `metrics` are its
    test metrics and the best validation score; `samples` are the true and the predicted name of each test sample, by
    index and name, empty where the task names no classes. `partial` lists the settings that left samples out.
    """

    folder: Path
    settings: dict[str, Any]
    metrics: dict[str, float]
    samples: dict[tuple[str, ...], tuple[str, str]]
    partial: list[str]
    set_keys: frozenset[str] = frozenset()

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def monitor(self) -> str:
        """The test metric of the name that the run was judged by."""
        return "test/" + str(self.settings["monitor"]).rpartition("/")[2]


def read_run(folder: Path) -> FinishedRun:
    """Read a run's folder. Raises CheckpointError for one that is no run, is damaged, or has not been tested."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise CheckpointError(f"{folder} is not the folder of a run: it has no config.yaml")
    try:
        settings = flatten_values(yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        seed_and_monitor = settings["seed"], settings["monitor"]
    except (yaml.YAMLError, LookupError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: it is not as the run wrote it") from error
    result = read_result(folder)
    if result is None or None in seed_and_monitor:
        raise CheckpointError(
            f"{folder} has no result, because its training has not ended; resume it with resume={folder}, or leave it "
            "out"
        )
    metrics = result["test"] | ({} if result["score"] is None else {str(settings["monitor"]): result["score"]})
    set_keys = frozenset(read_set_keys(folder))
    return FinishedRun(folder, settings, metrics, read_samples(folder), result.get("partial") or [], set_keys)


def read_samples(folder: Path) -> dict[tuple[str, ...], tuple[str, str]]:
    """Read the true and the predicted class of each test sample; none for a task that names no class."""
    path = folder / "test_predictions.csv"
    if not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if not {"index", "name", "true", "predicted"} <= set(rows.fieldnames or ()):
                return {}
            return {(row["index"], row["name"]): (row["true"], row["predicted"]) for row in rows}
    except (csv.Error, UnicodeDecodeError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: it is not as the run wrote it") from error


def flatten_values(node: Any, key: str = "") -> dict[str, Any]:
    """Return the values below a node by their dotted keys."""
    if not isinstance(node, dict) or not node:
        return {key: node}
    return {
        k: v
        for name, inner in node.items()
        for k, v in flatten_values(inner, f"{key}.{name}" if key else str(name)).items()
    }
