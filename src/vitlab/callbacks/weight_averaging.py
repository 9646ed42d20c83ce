"""An average of the weights beside those that are trained, which is what gets evaluated and kept."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from vitlab.errors import ConfigError
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class WeightAverage(WeightAveraging):
    """θ̄ ← θ̄ + share·(θ - θ̄) after the optimizer steps that are `due`; a kind of average says which, and the share.

    From its first update on, the average takes the place of the weights in validation, in the best model, at test
    and after training; before that, everything sees the weights themselves, and training always goes on with them.
    Both are in the latest state. Buffers are not averaged: the average has those of the newest weights.
    """

    def __init__(self) -> None:
        super().__init__(use_buffers=False)
        self._latest_update_step: int = 0
        self.count = 0  # of weights in the average, on the host: nothing waits for the device

    def due(self, step: int) -> bool:
        """Whether the weights after `step` optimizer steps, from 1, enter the average."""
        raise NotImplementedError

    def share(self, step: int) -> float:
        """What they count for; 1 begins the average anew, and the first always do."""
        raise NotImplementedError

    def goes_on(self, step: int, state: dict[str, Any]) -> bool:
        """Whether the average of a run saved after `step` steps, with this callback's `state`, is still the run's; one
        that is made longer may begin at another step, and what was averaged then is no more."""
        raise NotImplementedError

    def plan(self, num_steps: int) -> None:
        """Take how many optimizer steps the run has. Raises ConfigError if it would end with nothing averaged."""

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None:
        """Raise ConfigError for two averages, of which only one could be evaluated and kept, or for one of nothing."""
        if sum(isinstance(callback, WeightAverage) for callback in trainer.callbacks) > 1:
            raise ConfigError(
                "callbacks.ema and callbacks.swa both take the place of the weights; leave out one of them"
            )
        self.plan(task.num_steps)

    @property
    def updated(self) -> bool:
        return self.count > 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.plan(pl_module.num_steps)
        self._device = trainer.strategy.root_device  # where the weights will be: averaging copies nothing
        super().setup(trainer, pl_module, stage)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Lightning's update asks the device for its count at every step; this one counts on the host."""
        step = trainer.global_step
        if step <= self._latest_update_step:
            return
        assert self._average_model is not None
        if self.due(step):
            share = self.share(step) if self.updated else 1.0
            average, current = list(self._average_model.module.parameters()), list(pl_module.parameters())
            if share == 1:
                torch._foreach_copy_(average, current)
            else:
                torch._foreach_lerp_(average, current, share)
            self.count = 1 if share == 1 else self.count + 1
            self._average_model.n_averaged.fill_(self.count)
        if self.updated:
            for kept, buffer in zip(self._average_model.module.buffers(), pl_module.buffers(), strict=True):
                kept.copy_(buffer)
        self._latest_update_step = step

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Nothing: averages count optimizer steps."""

    def state_dict_of_average(self) -> dict[str, Tensor] | None:
        """The averaged weights under the task's names; None before the first update."""
        assert self._average_model is not None
        return self._average_model.module.state_dict() if self.updated else None

    @torch.no_grad()
    def _swap_models(self, pl_module: pl.LightningModule) -> None:
        if self.updated:
            super()._swap_models(pl_module)

    def _copy_average_to_current(self, pl_module: pl.LightningModule) -> None:
        if self.updated:
            super()._copy_average_to_current(pl_module)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        state = checkpoint["callbacks"].get(self.state_key)
        if self._average_model is not None and state and self.goes_on(checkpoint["global_step"], state):
            self.count = int(self._average_model.n_averaged)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if not self.updated and "current_model_state" in checkpoint:
            checkpoint["state_dict"] = checkpoint["current_model_state"]
