"""Callbacks that may not fit a run say so before it starts."""

from typing import Protocol, runtime_checkable

import pytorch_lightning as pl

from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


@runtime_checkable
class ChecksRun(Protocol):
    """A callback that looks at the trainer, the planned task and the data, and raises ConfigError."""

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None: ...
