"""Check the checkpoint that a run resumes from: it belongs to this model and this data, and nothing is missing."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import Module

from vitlab.callbacks import WeightAverage
from vitlab.checkpoints.contents import check_like
from vitlab.data import DataModule
from vitlab.errors import CheckpointError, ConfigError
from vitlab.tasks import Task
from vitlab.vocabulary import check_vocabularies


def check_continuation(
    checkpoint: dict[str, Any], task: Task, datamodule: DataModule, trainer: pl.Trainer, first_step: int
) -> None:
    """Raise CheckpointError or ConfigError unless the checkpoint belongs to this model, data and configuration."""
    if checkpoint["run"]["fingerprint"] != datamodule.fingerprint:
        raise CheckpointError(
            "the data has changed since the run started (other files, or another number of files); "
            "restore it, or start a new run"
        )
    check_vocabularies(datamodule.vocabularies(), checkpoint["run"], "the run")
    check_weights(checkpoint["state_dict"], task)
    averages = [c.state_key for c in trainer.callbacks if isinstance(c, WeightAverage)]
    if "current_model_state" in checkpoint and not checkpoint["callbacks"].keys() & averages:
        raise ConfigError("the run averages its weights; leave callbacks.ema or callbacks.swa in the config")
    groups = checkpoint["optimizer_states"][0]["param_groups"]
    check_like(dict(enumerate(groups)), {number: {"params": ""} for number in range(len(groups))}, "param_groups")
    saved = [(group.get("name"), len(group["params"])) for group in groups]
    if saved != [(group["name"], len(group["params"])) for group in task.groups]:
        raise ConfigError(
            "the parameter groups differ from the run's; a resumed run needs the same optimizer.layer_decay, "
            "multipliers, trained, unfreeze_step and task.lr_grid"
        )
    check_optimizer_state(checkpoint, task)
    rates = [0.0] * len(groups)
    fresh = {
        "_step_count": 0,
        "last_epoch": 0,
        "base_lrs": rates,
        "_last_lr": rates,
        "lr_lambdas": [None] * len(groups),
    }
    check_like(checkpoint["lr_schedulers"][0], fresh, "lr_schedulers.0")
    if any(kept is not None for kept in checkpoint["lr_schedulers"][0]["lr_lambdas"]):
        raise CheckpointError("the checkpoint is damaged: lr_schedulers.0.lr_lambdas is not empty")
    check_callback_states(checkpoint, trainer)
    if "current_model_state" in checkpoint:
        check_weights(checkpoint["current_model_state"], task)
    if task.num_steps < first_step:
        raise ConfigError(f"the run has already done {first_step} steps, but would end at step {task.num_steps}")


def check_optimizer_state(checkpoint: dict[str, Any], task: Task) -> None:
    """Raise CheckpointError unless the optimizer kept, for every parameter, what it keeps for the others of its group,
    in the parameter's shape."""
    saved = checkpoint["optimizer_states"][0]
    if len(saved["state"]) != checkpoint.get("num_optimizer_states", len(saved["state"])):
        raise CheckpointError("the checkpoint is damaged: the optimizer's state of some parameters is missing")
    for group, own in zip(saved["param_groups"], task.groups, strict=True):
        kept = [(saved["state"].get(number), p) for number, p in zip(group["params"], own["params"], strict=True)]
        states = [(state, parameter) for state, parameter in kept if state is not None]
        for state, parameter in states:
            if not isinstance(state, dict) or state.keys() != states[0][0].keys():
                raise CheckpointError(
                    f"the checkpoint is damaged: the optimizer's state of '{own['name']}' is incomplete"
                )
            for name, value in state.items():
                shape = value.shape if isinstance(value, Tensor) else ()
                if isinstance(value, str) or shape not in ((), parameter.shape):
                    raise CheckpointError(
                        f"the checkpoint is damaged: the optimizer's {name} of '{own['name']}' fits no parameter"
                    )


def check_callback_states(checkpoint: dict[str, Any], trainer: pl.Trainer) -> None:
    """Raise CheckpointError if a callback of the run should have saved a state, and did not."""
    before = {node.get("_target_", "").split(".")[-1] for node in checkpoint["run"]["config"]["callbacks"].values()}
    for callback in trainer.callbacks:
        name, own = type(callback).__name__, callback.state_dict()
        saved = checkpoint["callbacks"].get(callback.state_key)
        if own and saved is None and name in before and callback.state_key == name:
            raise CheckpointError(f"the checkpoint is damaged: callbacks has no {name}")
        if own and saved is not None:
            check_like(saved, own, f"callbacks.{name}")
        if isinstance(callback, WeightAverage) and name in before:
            check_like(checkpoint.get("current_model_state"), checkpoint["state_dict"], "current_model_state")
            check_like(checkpoint.get("averaging_state"), {"n_averaged": torch.tensor(0)}, "averaging_state")


def check_weights(state: dict[str, Tensor], task: Module) -> None:
    """Raise CheckpointError unless the weights of a checkpoint are those of this model."""
    saved = {name: tuple(value.shape) for name, value in state.items()}
    own = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    odd = sorted(name for name in saved.keys() | own.keys() if saved.get(name) != own.get(name))
    if odd:
        name = odd[0]
        raise CheckpointError(
            f"the checkpoint belongs to another model: {name} is {saved.get(name, 'missing')} in it and "
            f"{own.get(name, 'missing')} in the model of the config ({len(odd)} tensors differ)"
        )
