"""Count the memory that a training takes of a device."""

from typing import NamedTuple

import pytorch_lightning as pl
from torch import nn

from vitlab.callbacks import WeightAverage
from vitlab.counting import TrainingMemory, training_memory
from vitlab.data import DataModule, ImageDataModule
from vitlab.distributed.fully_sharded import FullySharded, units
from vitlab.tasks import Task


def estimate_training_memory(task: Task, datamodule: DataModule, trainer: pl.Trainer) -> TrainingMemory | None:
    """Count what a device holds with the trainer's strategy; None for a model that cannot be counted, or that reads no
    images."""
    memory = estimate_device_memory(task, datamodule, trainer)
    if memory is None:
        return None
    return divide_memory(task.model, memory, count_sharing_devices(trainer), count_gathered(trainer)).memory


def estimate_device_memory(task: Task, datamodule: DataModule, trainer: pl.Trainer) -> TrainingMemory | None:
    """Count a device with the whole model, as src/summary.py does, and an average of the weights."""
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


class DeviceShare(NamedTuple):
    """What one of the devices that share a model has: parameters, memory in training, bytes in an evaluation without
    activations."""

    parameters: int
    memory: TrainingMemory
    evaluation: int


def divide_memory(model: nn.Module, whole: TrainingMemory, devices: int, kept: int = 0) -> DeviceShare:
    """Count one of so many devices that share a model. With it are whole, at most, in training: the trunk and two
    blocks, of which the second is under way, with their gradients; weights or gradients of all blocks, or both, if
    `kept` is 1 or 2; in an evaluation: all weights."""
    parameters = sum(p.numel() for p in model.parameters())
    weights = sum(p.nbytes for p in model.parameters())
    if devices == 1:
        return DeviceShare(parameters, whole, whole.fixed)
    blocks = [sum(p.nbytes for p in block.parameters()) for block in units(model)]
    gathered = min(weights - sum(blocks) + 2 * max(blocks, default=0), weights)
    training = whole.divide_among(devices, (2 - kept) * gathered + kept * weights)
    return DeviceShare(-(-parameters // devices), training, whole.divide_among(devices, weights).fixed)


def count_gathered(trainer: pl.Trainer) -> int:
    """Count what each device keeps of all blocks while it trains: weights until the backward pass, gradients until the
    last micro-batch of a step."""
    strategy = trainer.strategy
    if not isinstance(strategy, FullySharded):
        return 0
    return (not strategy.reshard_after_forward) + (strategy.reduce_once and trainer.accumulate_grad_batches > 1)


def count_sharing_devices(trainer: pl.Trainer) -> int:
    """Count the devices that have a copy of the model together."""
    strategy = trainer.strategy
    return trainer.world_size // strategy.copies if isinstance(strategy, FullySharded) else 1
