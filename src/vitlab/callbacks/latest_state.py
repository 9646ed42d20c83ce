"""Keep the newest state to resume from, and the one before it."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from torch import nn

from vitlab.checkpoints.run_folder import CHECKPOINTS, LATEST
from vitlab.distributed.sharding import own_parameters, whole
from vitlab.errors import NonFiniteError


class LatestState(Checkpoint):
    """Keeps checkpoints/latest.ckpt: after every `every_n_steps` optimizer steps, at the end of each epoch that ends in
    a validation, and at the end of the run. previous.ckpt is the one before it, should the newer one be damaged.

    A state is saved between steps only, when all that was due after the last one (validation, best model, early
    stopping) is done, so that the resumed run is the uninterrupted one. Diverged weights are never saved: raises
    NonFiniteError instead.
    """

    def __init__(self, *, every_n_steps: int):
        super().__init__()
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps {every_n_steps} is not at least 1")
        self.every_n_steps = every_n_steps
        self.saved_step = 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.saved_step = trainer.global_step

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        due = trainer.global_step - self.saved_step >= self.every_n_steps
        if due and batch_idx % trainer.accumulate_grad_batches == 0:
            self.save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        every = trainer.check_val_every_n_epoch if trainer.enable_validation else None
        validated = every is not None and (trainer.current_epoch + 1) % every == 0
        if validated or trainer.should_stop or trainer.global_step >= pl_module.num_steps:
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """Save the present state, unless it is saved already."""
        if trainer.global_step == self.saved_step or trainer.fast_dev_run:
            return
        check_finite(trainer.lightning_module, trainer.global_step)
        latest, previous = (Path(trainer.default_root_dir) / CHECKPOINTS / f"{name}.ckpt" for name in LATEST)
        trainer.save_checkpoint(latest, weights_only=False, storage_options=previous)
        self.saved_step = trainer.global_step


def check_finite(module: nn.Module, step: int) -> None:
    """Raise NonFiniteError if any weight is NaN or infinite."""
    if not whole(nn.utils.get_total_norm(own_parameters(module).values())).isfinite():
        raise NonFiniteError(
            f"the weights are no longer finite at step {step}; the last good state is kept: lower optimizer.lr, "
            "lengthen the warm-up, or use trainer.precision=32-true"
        )
