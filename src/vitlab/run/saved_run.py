"""A finished run, rebuilt from what it saved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.checkpoints import file
from vitlab.checkpoints.run_folder import find_checkpoint, run_folder
from vitlab.run.build import build, from_saved
from vitlab.run.checks import check_weights
from vitlab.run.model import build_model
from vitlab.run.parts import build_task


@dataclass(frozen=True)
class SavedRun:
    """A checkpoint, the folder it lies in, and the config it was trained with."""

    path: Path
    folder: Path
    checkpoint: dict[str, Any]
    config: DictConfig

    @classmethod
    def open(cls, run: str, changes: dict[str, Any] | None = None) -> "SavedRun":
        """The best model of a run folder (the latest, where there is no best), or a checkpoint file; `changes` are
        merged over its config. Raises CheckpointError."""
        path = find_checkpoint(run, "best", "latest")
        checkpoint = file.read(path)
        config = from_saved(checkpoint["run"]["config"], str(path))
        merged = OmegaConf.merge(config, changes or {})
        assert isinstance(merged, DictConfig)
        return cls(path, run_folder(path).absolute(), checkpoint, merged)

    def datamodule(self) -> Any:
        """The data as the run had it, without mixing; nothing is opened yet."""
        return build(self.config.data, "data")

    def task(self) -> Any:
        """The task with the checkpoint's weights. Raises CheckpointError when they do not fit."""
        task = build_task(self.config, build_model(self.config.model))
        check_weights(self.checkpoint, task)
        task.load_state_dict(self.checkpoint["state_dict"])
        return task
