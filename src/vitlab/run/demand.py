"""Count what a run demands: memory of a device, and room on the disk."""

from pathlib import Path

import pytorch_lightning as pl
from torch import nn

from vitlab.callbacks import WeightAverage
from vitlab.checkpoints.room import check_room
from vitlab.counting import TrainingMemory, optimizer_bytes_per_value, training_memory
from vitlab.data import ImageDataModule
from vitlab.tasks import Task

STATES = 3  # the latest, the one before it, and one that is being written


def memory_of_training(task: Task, datamodule: ImageDataModule, trainer: pl.Trainer) -> TrainingMemory | None:
    """Count what a device with the whole model holds, as src/summary.py does, and an average of the weights; None for a
    model that cannot be counted."""
    shape = (datamodule.in_chans, datamodule.image_size, datamodule.image_size)
    bf16 = "16" in str(trainer.precision)
    try:
        memory = training_memory(task.model, shape, bf16, task.optimization.algorithm)
    except Exception:  # whatever a model of another library raises when its tensors hold nothing
        return None
    return memory._replace(fixed=memory.fixed + averages(trainer) * size_of(task.model))


def bytes_of_checkpoints(task: Task, trainer: pl.Trainer) -> int:
    """Count the most that lies on the disk at once: states to go on from, and the best model while it is replaced."""
    weights = size_of(task)
    learning = sum(parameter.numel() for group in task.groups for parameter in group["params"])
    kept = round(learning * optimizer_bytes_per_value(task.optimization.algorithm))
    return STATES * (weights * (1 + averages(trainer)) + kept) + 2 * weights


def check_disk(task: Task, trainer: pl.Trainer) -> None:
    """Raise StorageError where the disk of the run has no room for its checkpoints."""
    check_room(Path(trainer.default_root_dir), bytes_of_checkpoints(task, trainer))


def averages(trainer: pl.Trainer) -> int:
    """Count the copies of the weights that are kept beside them."""
    return sum(isinstance(callback, WeightAverage) for callback in trainer.callbacks)


def size_of(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters())
