"""Find a learning rate or a batch size before a training, by steps that keep nothing.

What is found is a value to type, as optimizer.lr=3e-4: a run has it in its config, and resumes and repeats exactly.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig
from pytorch_lightning.callbacks import Callback
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter1d

from vitlab.callbacks.figures import write_figure
from vitlab.config.job import Job
from vitlab.counting.memory import GIB, format_bytes
from vitlab.errors import ConfigError
from vitlab.out_of_memory import is_out_of_memory
from vitlab.programs.check import build_trainable
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.trainer import build_trainer, find_devices
from vitlab.run.checks.batch_advice import count_device_memory
from vitlab.run.checks.memory_estimate import estimate_training_memory
from vitlab.run.hardware.step_timing import bare_trainer, measure_steps
from vitlab.run.storage.output import RUNS, output_folder
from vitlab.run.storage.start import RunPlace, Start, start_or_resume
from vitlab.tasks import LinearProbe

SMOOTHING = 0.05  # of the loss: standard deviation, as a share of all steps
MARGIN = 3.0  # by which the rate that is found lies below the one at which the loss is least
DIVERGED = 4.0  # times the least loss


def tune(cfg: DictConfig) -> float | int:
    """Print a learning rate or a batch size for the training of this config, and draw how it was found; return it.
    Raises ConfigError where nothing is found."""
    if cfg.resume is not None:
        raise ConfigError("tune prepares a new training; leave out resume=")
    output = output_folder(cfg.output, "tune", RUNS / "tune" / cfg.name, overwrite=cfg.overwrite)
    job = Job.current()
    start = start_or_resume(cfg, job, RunPlace(str(job.folder), None))
    found = find_values(start.cfg, find_devices(start.cfg.trainer, job.folder, to_run=False))
    start = replace(start, cfg=found.cfg)
    key, value, figure = FINDERS[cfg.find](start, found.datamodule.source, cfg)
    path = write_figure(figure, output.make() / f"{cfg.find}.png")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'picture':<9}{path}\n{'found':<9}{key}={value:g}")
    return value


# -- the learning rate


class RangeTest(Callback):
    """Keeps the loss of each optimizer step, and ends the training when it diverges."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.micro_batches: list[float] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.micro_batches.append(float(outputs["loss"]))
        if trainer.global_step == len(self.losses):
            return
        self.losses.append(sum(self.micro_batches))  # Lightning has divided each by their number
        self.micro_batches = []
        trainer.should_stop = not self.losses[-1] <= DIVERGED * min(self.losses)


class Found(NamedTuple):
    """The key that a found value is for, the value, and how it was found."""

    key: str
    value: float | int
    figure: Figure


def find_lr(start: Start, source: Any, cfg: DictConfig) -> Found:
    """Train with a learning rate that grows from step to step (Smith, 2017, arXiv:1506.01186, section 3.3), and take a
    third of the rate at which the smoothed loss is least.

    The steepest fall, which Lightning and fastai take, may lie among the first steps, whose losses are noisy. These are
    the rates found with six seeds, and the accuracy on validation after 3 epochs (digits) or 1 (synthetic_tones):

    | data | steepest fall | a third of the least | accuracy at 3e-4, 1e-3, 3e-3 |
    |---|---|---|---|
    | digits | 9.3e-6 to 6.1e-4 | 3.6e-4 to 5.4e-4 | 91.7, 95.6, 47.8 % |
    | synthetic_tones | 2.3e-4 to 5.3e-4 | 1.3e-3 to 2.2e-3 | 98.0, 99.1, 98.8 % |
    """
    steps, lowest, highest = cfg.steps, cfg.lowest, cfg.highest
    if lowest >= highest:
        raise ConfigError(f"lowest={lowest:g} is not below highest={highest:g}; make it smaller")
    task, datamodule = build_trainable(start, source, start.cfg.global_batch_size)
    if isinstance(task, LinearProbe):
        raise ConfigError("task=linear_probe tries several learning rates at once; set task.lr_grid")
    rates = np.geomspace(lowest, highest, steps)
    task.schedule = lambda num_steps: lambda step: float(rates[min(step, steps - 1)]) / start.cfg.optimizer.lr
    test = RangeTest()
    trainer = build_trainer(start.cfg.trainer, start.folder, False, [], to_run=False)
    alone = bare_trainer(trainer, [test], max_steps=steps)
    datamodule.attach(alone)
    task.plan(datamodule.plan(), datamodule, {})
    alone.fit(task, datamodule=datamodule)
    losses = np.array([loss for loss in test.losses if math.isfinite(loss)])
    rates, smooth = rates[: len(losses)], smooth_losses(losses, steps)
    best = int(np.argmin(smooth))
    chosen = float(rates[best]) / MARGIN
    if best < SMOOTHING * steps or chosen < lowest:
        raise ConfigError(f"the loss does not fall from lowest={lowest:g} on; take a lower one, or look at the data")
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, color="tab:gray", alpha=0.4, label="loss of a step")
    axes.plot(rates, smooth, color="tab:blue", label="smoothed")
    axes.axvline(rates[best], color="tab:green", linestyle=":", label=f"it is least at {rates[best]:.1e}")
    axes.axvline(chosen, color="tab:orange", label=f"a third of that, {chosen:.1e}, is found")
    axes.set(xscale="log", xlabel="optimizer.lr", ylabel="training loss", ylim=(0, 1.5 * losses[0]))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return Found("optimizer.lr", float(f"{chosen:.1e}"), figure)


def smooth_losses(losses: Any, steps: int) -> Any:
    """Average the losses (S,) of a test of that many steps with their neighbours before and after."""
    return gaussian_filter1d(losses, SMOOTHING * steps, mode="nearest")


# -- the batch size


def find_batch_size(start: Start, source: Any, cfg: DictConfig) -> Found:
    """Measure batches of 2, 4, 8, … samples on one device, until one does not fit or the data has no more; take the
    fastest. On a CPU, where the process ends when memory runs out, stop after two that are no faster."""
    trainer = build_trainer(start.cfg.trainer, start.folder, False, [], to_run=False)
    memory = int(cfg.memory_gib * GIB) if cfg.memory_gib else count_device_memory(trainer)
    speeds: dict[int, float] = {}
    table, largest, size = None, None, 2  # batch normalisation takes no fewer
    while not (trainer.strategy.root_device.type == "cpu" and is_past_fastest(list(speeds.values()))):
        try:
            task, datamodule = build_trainable(start, source, size)
        except ConfigError:
            if not speeds:
                raise
            break  # the data has no more
        table = table or Table("data.device_batch_size", f"{datamodule.things}/s", "memory")
        counted = estimate_training_memory(task, datamodule, trainer)
        largest = None if counted is None else counted.largest_batch(memory)
        if largest is not None and size > largest:
            break
        try:
            speed = measure_steps(task, datamodule, trainer, cfg.seconds)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
        speeds[size] = size / (speed.learning * size + speed.updating)
        needed = "not counted" if counted is None else format_bytes(counted.fixed + size * counted.per_image)
        table.add_row(f"{size:,}", f"{speeds[size]:,.0f}", needed)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        size *= 2
    if not speeds:
        raise ConfigError(f"not even a batch of 2 samples fits in {format_bytes(memory)}; take a smaller model")
    fits = f"at least {max(speeds):,} {datamodule.things} fit"
    if largest is not None:
        fits = f"about {largest:,} {datamodule.things} fit in {format_bytes(memory)}, of which a tenth stays free"
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    console.print(f"{'largest':<9}{fits}")
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(list(speeds), list(speeds.values()), marker="o")
    axes.set(xlabel="data.device_batch_size", ylabel=f"{datamodule.things}/s", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    return Found("data.device_batch_size", max(speeds, key=lambda size: speeds[size]), figure)


def is_past_fastest(speeds: list[float]) -> bool:
    """Whether the last two are no faster than those before."""
    return len(speeds) > 2 and max(speeds[-2:]) <= max(speeds[:-2])


FINDERS: dict[str, Callable[[Start, Any, DictConfig], Found]] = {"lr": find_lr, "batch_size": find_batch_size}
