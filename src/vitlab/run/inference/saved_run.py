"""Rebuild a finished run from what it saved."""

import functools
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vitlab.callbacks.known_classes_file import read_known_classes
from vitlab.checkpoints.run_folder import CONFIG, find_model, run_folder
from vitlab.checkpoints.run_identity import is_edited, read_checkpoint
from vitlab.config.build import build
from vitlab.config.nodes import make_node, merge_node
from vitlab.config.stored_config import read_saved_config
from vitlab.run.building.model import build_model
from vitlab.run.building.parts import build_task
from vitlab.run.checks.continuation import check_weights
from vitlab.run.inference.calibration import read_calibration
from vitlab.vocabulary import Vocabulary, restore_vocabulary


@dataclass(frozen=True)
class SavedRun:
    """A checkpoint, the folder it lies in, and the config it was trained with."""

    path: Path
    folder: Path
    checkpoint: dict[str, Any]
    config: DictConfig

    @classmethod
    def open(cls, run: str, changes: dict[str, Any] | None = None) -> "SavedRun":
        """Open the model of a run folder (the best one, if it has kept one), or a checkpoint file, with `changes`
        merged over its config. Raises CheckpointError."""
        path = find_model(run)
        checkpoint, folder = read_checkpoint(path), run_folder(path).absolute()
        config = read_saved_config(checkpoint, str(path))
        if is_edited(folder):
            warnings.warn(
                f"{folder / CONFIG} was changed after the run wrote it; the change has no effect", stacklevel=2
            )
        return cls(path, folder, checkpoint, config).change_config(changes or {})

    def change_config(self, changes: dict[str, Any]) -> "SavedRun":
        """Open the same run with other values in its config."""
        return replace(self, config=merge_node(self.config, make_node(changes)))

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Give the tokens that the model was taught to write; None for a model that writes nothing."""
        state = self.checkpoint["run"].get("vocabulary")
        return None if state is None else restore_vocabulary(state)

    @property
    def input_vocabulary(self) -> Vocabulary | None:
        """Give the tokens that the model reads; None for a model that reads images."""
        state = self.checkpoint["run"].get("input_vocabulary")
        return None if state is None else restore_vocabulary(state)

    @functools.cached_property
    def calibration(self) -> dict[str, Any]:
        """What was fitted to the model before its test; {} for a model that was not calibrated."""
        return read_calibration(self.folder, self.checkpoint)

    @property
    def temperature(self) -> float | None:
        """Give the temperature of calibrated probabilities; None for a model that was not calibrated."""
        return self.calibration.get("temperature")

    def datamodule(self) -> Any:
        """Build the data as the run had it, without mixing; nothing is opened yet."""
        return build(self.config.data, "data")

    def task(self) -> Any:
        """Build the task with the checkpoint's weights, and the temperature and known classes that were fitted to them.
        Raises CheckpointError when they do not fit."""
        task = build_task(self.config, build_model(self.config.model), vocabulary=self.vocabulary)
        check_weights(self.checkpoint["state_dict"], task)
        task.load_state_dict(self.checkpoint["state_dict"])
        if self.temperature is not None:
            task.temperature = self.temperature
        if "false_alarm_rate" in self.calibration:
            task.known = read_known_classes(self.folder)
        return task
