"""An exponential moving average of the weights, which is what gets evaluated and kept."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA(WeightAveraging):
    """θ̄ ← decay·θ̄ + (1 - decay)·θ after every optimizer step from `start_step` on (Polyak & Juditsky, 1992).

    From its first update on, the average takes the place of the weights in validation, in the best model, at test
    and after training; before that, everything sees the weights themselves. Both are in the latest state.
    Raises ValueError for a decay outside (0, 1).
    """

    def __init__(self, *, decay: float, start_step: int):
        if not 0 < decay < 1:
            raise ValueError(f"ema decay {decay} is not between 0 and 1")
        if start_step < 0:
            raise ValueError(f"ema start_step {start_step} is negative")
        super().__init__(use_buffers=False, multi_avg_fn=get_ema_multi_avg_fn(decay))
        self._latest_update_step: int = 0
        self.decay = decay
        self.start_step = start_step
        self.updated = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._device = trainer.strategy.root_device  # where the weights will be: averaging copies nothing
        super().setup(trainer, pl_module, stage)

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and step_idx >= self.start_step

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Lightning's update asks the device for its count at every step; this one counts on the host."""
        if trainer.global_step <= self._latest_update_step or not self.should_update(trainer.global_step - 1):
            return
        assert self._average_model is not None
        average, current = list(self._average_model.module.parameters()), list(pl_module.parameters())
        if self.updated:
            torch._foreach_lerp_(average, current, 1 - self.decay)
        else:
            torch._foreach_copy_(average, current)
        for kept, buffer in zip(self._average_model.module.buffers(), pl_module.buffers(), strict=True):
            kept.copy_(buffer)
        self._average_model.n_averaged += 1
        self.updated = True
        self._latest_update_step = trainer.global_step

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
        self.updated = self._average_model is not None and bool(self._average_model.n_averaged > 0)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if not self.updated and "current_model_state" in checkpoint:
            checkpoint["state_dict"] = checkpoint["current_model_state"]
