"""Let callbacks refuse a run that they do not fit, before it starts."""

from typing import Protocol, runtime_checkable

import pytorch_lightning as pl

from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


@runtime_checkable
class ChecksRun(Protocol):
    """A callback that checks the trainer, the planned task and the data, and raises ConfigError."""

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None: ...
