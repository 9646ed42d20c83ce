"""One entry of training metrics per logging interval: the only time the host waits for the device."""

import math
import resource
import sys
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.errors import NonFiniteError
from vitlab.invocation import format_command, shorten_path

QUIET = 30.0  # seconds without a line, after which one is printed where there is no bar


class StepLog(Callback):
    """Logs, every trainer.log_every_n_steps optimizer steps and at the end of an epoch: the task's training metrics,
    learning rate, images per second (of all devices, evaluation left out), seconds that the run has taken so far
    (evaluation and earlier starts included, work that a kill threw away left out) and peak memory in MiB. With a GPU
    also: the share of time in which the host waited for a batch, and the memory that torch holds, in MiB.

    `latest` holds the last entry, for the progress bar. Raises NonFiniteError when the loss is not finite.
    """

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self.step = 0
        self.seconds = 0.0
        self.started = 0.0
        self.waited = 0.0  # for batches, since the last entry
        self.ended = 0.0  # when the last batch was done
        self.total_images = 0
        self.total_seconds = 0.0
        self.before = 0.0  # seconds that earlier starts took
        self.fit_started = time.perf_counter()
        self.first_step = 0
        self.told: float | None = None  # when a line was printed last; None where a bar shows more

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.before + time.perf_counter() - self.fit_started}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.before = state_dict["seconds"]

    @property
    def mean_images_per_second(self) -> float:
        """Give the speed of the whole run, without its evaluations."""
        return self.total_images / max(self.total_seconds, 1e-9)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        self.seconds, self.started = 0.0, time.perf_counter()
        self.fit_started = self.ended = self.started
        self.waited = 0.0
        self.first_step = trainer.global_step
        self.told = self.started if trainer.is_global_zero and not sys.stdout.isatty() else None

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds += time.perf_counter() - self.started

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = self.ended = time.perf_counter()
        self.told = self.started if self.told is not None else None  # the progress has printed a line

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.waited += time.perf_counter() - self.ended

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        last = batch_idx + 1 == trainer.num_training_batches
        if stepped and (trainer.global_step % trainer.log_every_n_steps == 0 or last):
            self._log(trainer, pl_module)
        if self.told is not None and time.perf_counter() - self.told > QUIET:
            self._tell(trainer, pl_module)
        self.ended = time.perf_counter()

    def _tell(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print where a run is that has no bar and a validation far away, and how long the rest will take."""
        self.told = time.perf_counter()
        loss = f"  loss {self.latest['train/loss']:.4f}" if self.latest else ""
        left = f"  {left} left" if (left := self.time_left(trainer, pl_module)) else ""
        print(f"step {trainer.global_step}/{pl_module.num_steps}{loss}{left}", flush=True)

    def time_left(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> str:
        """Estimate the time of the steps that are left, their validations included, from those of this start; "" before
        the first step and after the last one."""
        done, left = trainer.global_step - self.first_step, pl_module.num_steps - trainer.global_step
        return format_seconds(left * (time.perf_counter() - self.fit_started) / done) if done and left > 0 else ""

    def _log(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        values = pl_module.training_metrics()  # waits for the device
        now = time.perf_counter()
        seconds = self.seconds + now - self.started
        images = (trainer.global_step - self.step) * trainer.datamodule.global_batch_size
        self.total_images += images
        self.total_seconds += seconds
        values |= {
            "train/lr": pl_module.last_lr(),
            "train/images_per_second": images / max(seconds, 1e-9),
            "train/seconds": self.before + now - self.fit_started,
            "train/peak_memory_mib": peak_memory_mib(pl_module.device),
            "epoch": trainer.global_step / trainer.datamodule.count_steps_per_epoch(),
        }
        if pl_module.device.type == "cuda":
            values["train/data_wait_ratio"] = self.waited / max(seconds, 1e-9)
            values["train/reserved_memory_mib"] = torch.cuda.max_memory_reserved(pl_module.device) / 2**20
        self.waited = 0.0
        self.latest = values
        self.step, self.seconds, self.started = trainer.global_step, 0.0, now
        if not math.isfinite(values["train/loss"]):
            loss = getattr(getattr(pl_module, "loss", None), "func", None)
            own = (
                ""
                if loss is None or is_ours(loss)
                else f", or look at {loss.__module__}.{loss.__name__}, which gives it"
            )
            raise NonFiniteError(
                f"the training loss is {values['train/loss']} at step {trainer.global_step}: lower optimizer.lr "
                f"(or task.lr_grid), lengthen the warm-up, or use trainer.precision=32-true{own}; the layer "
                f"is named by {format_command('replay')} {quote(f'run={shorten_path(Path(trainer.default_root_dir))}')}"
            )
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)


def is_ours(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] == __name__.partition(".")[0]


def format_seconds(seconds: float) -> str:
    """Return a time as a person says it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def peak_memory_mib(device: torch.device) -> float:
    """The most memory this process has held: on the device, or, for a CPU, of the process itself."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes on macOS, KiB elsewhere
