"""Count the memory that a training takes of a device."""

import pytorch_lightning as pl

from vitlab.callbacks import WeightAverage
from vitlab.counting import TrainingMemory, training_memory
from vitlab.data import DataModule, ImageDataModule
from vitlab.tasks import Task


def memory_of_training(task: Task, datamodule: DataModule, trainer: pl.Trainer) -> TrainingMemory | None:
    """Count what a device with the whole model holds, as src/summary.py does, and an average of the weights; None for a
    model that cannot be counted, or that reads no images."""
    if not isinstance(datamodule, ImageDataModule):
        return None
    shape = (datamodule.in_chans, datamodule.image_size, datamodule.image_size)
    bf16 = "16" in str(trainer.precision)
    try:
        memory = training_memory(task.model, shape, bf16, task.optimization.algorithm)
    except Exception:  # whatever a model of another library raises when its tensors hold nothing
        return None
    averages = sum(isinstance(callback, WeightAverage) for callback in trainer.callbacks)
    return memory._replace(fixed=memory.fixed + averages * sum(p.nbytes for p in task.model.parameters()))
