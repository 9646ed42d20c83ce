"""Stop when a metric no longer improves; a resumed run stops where the uninterrupted one would."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks
from pytorch_lightning.utilities.rank_zero import rank_zero_warn

from vitlab.ranges import Natural


class EarlyStopping(callbacks.EarlyStopping):
    """Lightning's early stopping, but with the patience of the config rather than the checkpoint's. A run that was
    killed after it had stopped does not train on. `patience` counts validations without a better value of `monitor`."""

    def __init__(self, *, monitor: str, mode: str, patience: Natural, check_on_train_epoch_end: bool):
        super().__init__(monitor, mode=mode, patience=patience, check_on_train_epoch_end=check_on_train_epoch_end)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count and self.wait_count >= self.patience:
            rank_zero_warn(
                f"{self.monitor} had not improved for {self.wait_count} validations, so training has ended; to "
                "continue, add callbacks=[default,early_stopping] and a higher callbacks.early_stopping.patience"
            )
            trainer.should_stop = True
