"""Show progress: a line for each validation, and a Rich bar in a terminal."""

import logging
import sys
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.callbacks.progress.rich_progress import BatchesProcessedColumn, CustomBarColumn
from rich.progress import ProgressColumn, Task, TextColumn
from rich.text import Text

from vitlab.callbacks.best_model import BestModel
from vitlab.callbacks.step_log import StepLog
from vitlab.monitors import format_metric

LOG = logging.getLogger(__name__)  # train.log of the run's folder


class Progress(RichProgressBar):
    """The metrics that matter, from the last logged entry and the last validation; nothing is read from the device. The
    bar, which has room for few of them, fits into 80 columns."""

    def __init__(self) -> None:
        super().__init__(leave=False)
        self.validated: dict[str, float] = {}  # read from the device once
        self.left = ""  # time of the whole run

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if not sys.stdout.isatty():
            self.disable()
        super().setup(trainer, pl_module, stage)

    def configure_columns(self, trainer: pl.Trainer) -> list[Any]:
        theme = self.theme
        return [
            TextColumn("[progress.description]{task.description}"),
            CustomBarColumn(
                bar_width=16,
                complete_style=theme.progress_bar,
                finished_style=theme.progress_bar_finished,
                pulse_style=theme.progress_bar_pulse,
            ),
            BatchesProcessedColumn(style=theme.batch_progress),
            TimeLeft(self),
        ]

    def _get_train_description(self, current_epoch: int) -> str:
        """Count from 1, as the printed lines do."""
        last = f"/{self.trainer.max_epochs}" if (self.trainer.max_epochs or -1) > 0 else ""
        return f"{f'Epoch {current_epoch + 1}{last}':{len(self.validation_description)}}"

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, int | str | float]:
        judged_by = [callback.monitor for callback in trainer.callbacks if isinstance(callback, BestModel)]
        shown = {name: value for name, value in self.validated.items() if name in judged_by}
        self.left = time_left(trainer)
        return {name: value for name, value in self._values(trainer, shown).items() if name == "loss" or name in shown}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
        super().on_validation_end(trainer, pl_module)
        if trainer.is_global_zero and trainer.state.fn == "fit" and not trainer.sanity_checking:
            LOG.info(self._tell(trainer, pl_module, self.validated))

    def _tell(self, trainer: pl.Trainer, pl_module: pl.LightningModule, validated: dict[str, float]) -> str:
        """Print a line above the bar: where the run is, what was measured last, and how long the rest will take."""
        words = [f"{name} {value}" for name, value in self._values(trainer, validated).items()]
        place = f"epoch {trainer.current_epoch + 1}  step {trainer.global_step}/{pl_module.num_steps}"
        line = "  ".join([place, *words])
        left = time_left(trainer)
        printed = f"{line}  {left} left" if left else line
        if self.is_disabled or self.progress is None:
            print(printed, flush=True)
        else:
            self.progress.console.print(printed, highlight=False, markup=False)
        return line

    def _values(self, trainer: pl.Trainer, validated: dict[str, float]) -> dict[str, str]:
        """Loss, learning rate and speed of the last entry, and what was measured in a validation, in words."""
        words = {}
        log = find_step_log(trainer)
        if latest := log.latest if log is not None else None:
            words["loss"] = f"{latest['train/loss']:.4f}"
            words["lr"] = f"{latest['train/lr']:.3g}"
            words[f"{trainer.datamodule.things}/s"] = f"{latest['train/images_per_second']:.0f}"
        return words | {name: format_metric(name, value) for name, value in validated.items()}


def find_step_log(trainer: pl.Trainer) -> StepLog | None:
    return next((callback for callback in trainer.callbacks if isinstance(callback, StepLog)), None)


def time_left(trainer: pl.Trainer) -> str:
    log = find_step_log(trainer)
    return log.time_left(trainer, trainer.lightning_module) if log is not None else ""


class TimeLeft(ProgressColumn):
    """The time left of the whole run, in the bar of each of its parts."""

    def __init__(self, bar: Progress):
        super().__init__()
        self.bar = bar

    def render(self, task: Task) -> Text:
        return Text(self.bar.left, style="progress.remaining")
