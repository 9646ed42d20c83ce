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
        super().__init__(use_buffers=False, multi_avg_fn=get_ema_multi_avg_fn(decay))
        self.start_step = start_step

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and step_idx >= self.start_step

    @property
    def updated(self) -> bool:
        return self._average_model is not None and bool(self._average_model.n_averaged > 0)

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

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if not self.updated and "current_model_state" in checkpoint:
            checkpoint["state_dict"] = checkpoint["current_model_state"]
