"""Progress for a reader: a Rich bar in a terminal, one line per epoch elsewhere."""

import sys

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar

from vitlab.callbacks.step_log import StepLog


class Progress(RichProgressBar):
    """The metrics that matter, from the last logged entry and the last validation; nothing is read from the device."""

    def __init__(self) -> None:
        super().__init__(leave=False)
        self.validated: dict[str, float] = {}  # read from the device once

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if not sys.stdout.isatty():
            self.disable()
        super().setup(trainer, pl_module, stage)

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, int | str | float]:
        return {name: f"{value:.4g}" for name, value in self._values(trainer).items()}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
        super().on_validation_end(trainer, pl_module)
        if self.is_disabled and trainer.is_global_zero and trainer.state.fn == "fit":
            values = "  ".join(f"{name} {value:.4g}" for name, value in self._values(trainer).items())
            print(f"epoch {trainer.current_epoch + 1}  step {trainer.global_step}/{pl_module.num_steps}  {values}")
            sys.stdout.flush()

    def _values(self, trainer: pl.Trainer) -> dict[str, float]:
        logs = [callback.latest for callback in trainer.callbacks if isinstance(callback, StepLog)]
        latest = logs[0] if logs else {}
        shown = {
            name.removeprefix("train/"): latest[f"train/{name}"]
            for name in ("loss", "lr", "images_per_second")
            if f"train/{name}" in latest
        }
        return shown | self.validated
