"""Keep the best model so far, chosen on the validation split."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities.rank_zero import rank_zero_warn

from vitlab.callbacks.latest_state import LatestState, check_finite
from vitlab.callbacks.weight_averaging import WeightAverage
from vitlab.checkpoints import file
from vitlab.checkpoints.writer import Writer
from vitlab.distributed.sharding import unshard_state
from vitlab.errors import CheckpointError


class BestModel(Callback):
    """Keeps checkpoints/best.ckpt: weights (averaged ones, with EMA or SWA), the score, and what rebuilds the run.

    `monitor` is a metric of the task; `mode` says whether its lowest or highest value is best. A tie keeps the
    earlier model. A large one is written while training continues, before any state that names it.
    """

    def __init__(self, *, monitor: str, mode: Literal["min", "max"]):
        self.monitor = monitor
        self.sign = 1 if mode == "max" else -1
        self.score: float | None = None
        self.step = 0
        self.validated_step = -1
        self.writer: Writer | None = None

    def state_dict(self) -> dict[str, Any]:
        state = {"score": self.score, "step": self.step, "validated_step": self.validated_step}
        return state | {"monitor": self.monitor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score; start over if the run is now judged by another metric."""
        if isinstance(state_dict["score"], str):
            raise CheckpointError(f"the checkpoint is damaged: the best score is {state_dict['score']!r:.80}")
        if state_dict["monitor"] == self.monitor:
            self.score, self.step = state_dict["score"], state_dict["step"]
        self.validated_step = state_dict["validated_step"]

    def path(self, trainer: pl.Trainer) -> Path:
        return Path(trainer.default_root_dir) / "checkpoints" / "best.ckpt"

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run killed after its latest state may have kept a better model since: take that one as the best so far.
        Forget it if its file is damaged or missing."""
        if not trainer.global_step:
            return
        try:
            kept = file.read(self.path(trainer))
        except CheckpointError as error:
            if self.score is not None:
                rank_zero_warn(f"{error}; from now on, the best model is chosen only among new validations")
                self.score, self.step, self.validated_step = None, 0, -1
            return
        if kept["global_step"] > self.step and self.monitor in kept.get("score", {}):
            self.score, self.step = kept["score"][self.monitor], kept["global_step"]

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validated_step = trainer.global_step
        if trainer.fast_dev_run or trainer.sanity_checking:
            return
        score = float(trainer.callback_metrics[self.monitor])
        if math.isnan(score) or (self.score is not None and self.sign * (score - self.score) <= 0):
            return
        check_finite(pl_module, trainer.global_step)
        self.score, self.step = score, trainer.global_step
        weights = self._weights(trainer)
        if trainer.is_global_zero:
            checkpoint = {
                "state_dict": weights,
                "global_step": self.step,
                "epoch": trainer.current_epoch,
                "score": {self.monitor: score},
                "run": pl_module.record,
            }
            latest = find_latest_state(trainer)
            add = partial(latest.open_chain(trainer).add_best, self.step)
            self.writer = self.writer or Writer(latest.background, held=True)
            self.writer.write(checkpoint, partial(file.write, path=self.path(trainer), chain=add))

    def read_weights(self, trainer: pl.Trainer) -> dict[str, Any]:
        """Read the best model's weights, on every rank from the first one's folder: others that srun started have
        folders of their own. Raises CheckpointError, and StorageError where they could not be written."""
        if self.writer is not None:
            self.writer.finish()
        weights: dict[str, Any] = file.read(Path(trainer.strategy.broadcast(str(self.path(trainer)))))["state_dict"]
        return weights

    def _weights(self, trainer: pl.Trainer) -> dict[str, Any]:
        weights = trainer.lightning_module.state_dict()
        for callback in trainer.callbacks:
            if isinstance(callback, WeightAverage):
                weights.update(callback.averages)
        return unshard_state(weights)


def find_latest_state(trainer: pl.Trainer) -> LatestState:
    """Return the callback that writes the latest state, whose thread and chain the best model shares."""
    return next(callback for callback in trainer.checkpoint_callbacks if isinstance(callback, LatestState))
