"""Advise how many images a device could take at once, when a batch was too large."""

import os

import pytorch_lightning as pl
import torch

from vitlab.counting.memory import format_bytes
from vitlab.data import DataModule
from vitlab.run.checks.memory_estimate import estimate_training_memory
from vitlab.tasks import Task


def advise_batch_size(datamodule: DataModule, trainer: pl.Trainer, trained: Task | None) -> str:
    """Say what to set when a batch did not fit: at most half of it, and, for a task that is trained, no more than the
    count for the device's memory."""
    share = datamodule.global_batch_size // trainer.world_size
    size = share // trainer.accumulate_grad_batches
    memory = count_device_memory(trainer)
    count = None if trained is None else count_largest_batch(trained, datamodule, trainer, memory)
    fits = size // 2 if count is None else min(size // 2, count)
    best = find_largest_part(share, fits)
    where = f"with a batch of {size} on a device of {format_bytes(memory)}"
    if best is None:
        return f"{where}; take smaller images (data.image_size), another model, or activation_checkpointing=true"
    how = "half of it or less" if count is None else f"{count:,} are counted to fit"
    return f"{where}; set data.device_batch_size={best} ({how}), and global_batch_size stays as it is"


def find_largest_part(share: int, at_most: int) -> int | None:
    """Return the largest batch up to `at_most` that divides a device's share of the global batch; None for none."""
    return next((number for number in range(min(share, at_most), 0, -1) if share % number == 0), None)


def count_largest_batch(task: Task, datamodule: DataModule, trainer: pl.Trainer, memory: int) -> int | None:
    """Give the largest batch as the command summary counts it; None for a model that it cannot count."""
    demand = estimate_training_memory(task, datamodule, trainer)
    return None if demand is None else demand.largest_batch(memory)


def count_device_memory(trainer: pl.Trainer) -> int:
    """Give the bytes of a device; the processes of one machine share its CPU's."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    processes: int = trainer.num_devices
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // processes
