"""Measure how long a step takes, by a training of some seconds that keeps nothing."""

import statistics
import time
from itertools import pairwise
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.data import DataModule
from vitlab.tasks import Task

MOST_STEPS = 50


class Speed(NamedTuple):
    """Seconds: to read an image in one process, to learn from it on one device, and to update the weights."""

    reading: float
    learning: float
    updating: float


class Stopwatch(Callback):
    """Times the parts of each step, and ends the training once `seconds` are over: after two steps, at the earliest, as
    the first one is slow."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.marks: list[tuple[float, ...]] = []  # before and after reading, before the update, at the end
        self.begun: list[float] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begun = [read_clock(pl_module)]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.begun.append(read_clock(pl_module))

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self.begun.append(read_clock(pl_module))

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        end = read_clock(pl_module)
        self.marks.append((*self.begun, end))
        self.begun = [end]
        trainer.should_stop = len(self.marks) > 1 and end - self.marks[0][0] > self.seconds

    def speed(self, batch_size: int) -> Speed:
        """Give the medians over all steps but the first, each of that many images."""
        taken = [[after - before for before, after in pairwise(marks)] for marks in self.marks[1:]]
        reading, learning, updating = (statistics.median(part) for part in zip(*taken, strict=True))
        return Speed(reading / batch_size, learning / batch_size, updating)


def read_clock(module: pl.LightningModule) -> float:
    """Wait for the device, and give the time."""
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)
    return time.perf_counter()


def measure_steps(task: Task, datamodule: DataModule, trainer: pl.Trainer, seconds: float) -> Speed:
    """Train on one device as the run would, on batches of its data module."""
    stopwatch = Stopwatch(seconds)
    alone = bare_trainer(trainer, [stopwatch], max_steps=MOST_STEPS)
    size = datamodule.attach(alone)
    task.plan(datamodule.plan(), datamodule, {})
    alone.fit(task, datamodule=datamodule)
    return stopwatch.speed(size)


def bare_trainer(like: pl.Trainer, callbacks: list[Callback], **length: int) -> pl.Trainer:
    """Make a trainer for one device of the same kind and precision, that keeps nothing."""
    return pl.Trainer(
        accelerator=like.strategy.root_device.type,
        devices=1,
        precision=like.precision,
        callbacks=callbacks,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **length,
    )
