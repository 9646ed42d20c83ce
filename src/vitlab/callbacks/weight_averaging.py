"""Average the weights beside those that are trained; the average is what gets evaluated and kept."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from vitlab.distributed.sharding import fill, get_own_parameters, unshard_state
from vitlab.errors import ConfigError
from vitlab.tasks import LinearProbe
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class WeightAverage(Callback):
    """θ̄ ← θ̄ + share·(θ - θ̄) after the optimizer steps that are `due`; a kind of average says which, and the share.

    From its first update on, the average takes the place of the weights in validation, in the best model, at test
    and after training; before that, everything sees the weights themselves, and training always uses them.
    Both are in the latest state. Buffers are not averaged: the average has those of the newest weights.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.latest_step = 0
        self.count = 0  # number of weights in the average, kept on the host so that nothing waits for the device
        self.weights: dict[str, nn.Parameter] = {}  # by name, while they are trained
        self.averages: dict[str, Tensor] = {}  # from the first update on
        self.aside: dict[str, Tensor] = {}  # the weights, while averages are in their place

    def is_due(self, step: int) -> bool:
        """Whether the weights after `step` optimizer steps (from 1) enter the average."""
        raise NotImplementedError

    def share(self, step: int) -> float:
        """Give the weight of the new values in the average; 1 restarts the average, and the first update always
        does."""
        raise NotImplementedError

    def can_continue(self, step: int, state: dict[str, Any]) -> bool:
        """Whether the average of a run that was saved after `step` steps, with this callback's `state`, can be
        continued. A run that is made longer may have to begin at another step, and then what was averaged before is
        dropped."""
        raise NotImplementedError

    def plan(self, num_steps: int) -> None:
        """Take the number of optimizer steps of the run. Raises ConfigError if it would end before anything is
        averaged."""

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None:
        """Raise ConfigError for two averages, since only one could be evaluated and kept, and for an average of
        nothing."""
        if sum(isinstance(callback, WeightAverage) for callback in trainer.callbacks) > 1:
            raise ConfigError("callbacks.ema and callbacks.swa both replace the weights; leave out one of them")
        if isinstance(task, LinearProbe):
            raise ConfigError(
                "task=linear_probe keeps the best of several heads, not an average; leave out callbacks.ema "
                "and callbacks.swa"
            )
        self.plan(task.num_steps)

    # -- training

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            self.forget()
            self.plan(pl_module.num_steps)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After a resume the averages stand in place of the weights, as in a checkpoint; put the weights back."""
        self.weights = get_own_parameters(pl_module)
        if self.count:
            self.averages = copies(self.weights)
        self.restore(pl_module)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step > self.latest_step and self.is_due(step):
            share = self.share(step) if self.count else 1.0
            if share == 1:
                self.averages = copies(self.weights)
            else:
                torch._foreach_lerp_(list(self.averages.values()), list(self.weights.values()), share)
            self.count = 1 if share == 1 else self.count + 1
        self.latest_step = step

    # -- evaluation

    @torch.no_grad()
    def place(self, module: nn.Module) -> None:
        """Put the averages in place of the weights, and keep the weights aside. The weights are complete in one of the
        two places at every moment, and the averages always are, so that whatever fails, the next checkpoint has both.
        """
        if self.averages and not self.aside:
            weights = get_own_parameters(module)
            self.aside = copies(weights)
            for name, weight in weights.items():
                fill(weight, self.averages[name])

    @torch.no_grad()
    def restore(self, module: nn.Module) -> None:
        """Put the weights back to train on; after a resume, the buffers with them."""
        if self.weights and self.aside:
            own = module.state_dict()
            for name, value in self.aside.items():
                fill(own[name], value)
            self.aside = {}

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.place(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.restore(pl_module)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.restore(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.place(pl_module)
        self.weights = {}

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"latest_update_step": self.latest_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.latest_step = state_dict["latest_update_step"]

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = unshard_state({**state, **self.averages})
        checkpoint["current_model_state"] = unshard_state({**state, **self.aside})
        checkpoint["averaging_state"] = {"n_averaged": torch.tensor(self.count)}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        state = checkpoint["callbacks"].get(self.state_key)
        self.aside = checkpoint.get("current_model_state", {})
        if self.aside and state and self.can_continue(checkpoint["global_step"], state):
            self.count = int(checkpoint["averaging_state"]["n_averaged"])


def copies(weights: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}
