"""Compute some steps twice from the same state, and stop at the first bit that differs: a processor or a memory that
errs says nothing by itself (Dixit et al., 2021, arXiv:2102.11245)."""

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer

from vitlab.checkpoints import file
from vitlab.checkpoints.differences import find_differences, list_tensors
from vitlab.errors import ConfigError, RecomputationError
from vitlab.ranges import Count
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class RecomputedSteps(Callback):
    """Computes every `every_n_steps`-th optimizer step twice, first its gradients, then its update, and compares both
    results bit for bit. Training is what it would be without.

    At a difference, raises RecomputationError, and keeps the batches and both results in recomputed/ of the run's
    folder. Such a step takes twice the time, and memory for two more copies of weights and optimizer state. What went
    wrong before the step, in weights or images, is the same both times and is not seen.
    """

    def __init__(self, *, every_n_steps: Count):
        self.every_n_steps = every_n_steps
        self.batches: list[tuple[Any, int]] = []  # of the step, with their places in the epoch
        self.buffers: dict[str, Tensor] = {}  # before the step
        self.weights: dict[str, Tensor] = {}  # before the update, with the optimizer's state
        self.states: dict[str, Any] = {}

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None:
        """Raise ConfigError for a run whose steps do not give the same twice, or cannot be taken twice."""
        otherwise = "or remove recomputed_steps from callbacks"
        if trainer.precision == "16-mixed":
            raise ConfigError(f"float16 steps cannot be computed twice; set trainer.precision=bf16-mixed, {otherwise}")
        if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            raise ConfigError(f"steps of a sharded model cannot be computed twice; set trainer=ddp, {otherwise}")
        if trainer.strategy.root_device.type != "cpu" and not torch.are_deterministic_algorithms_enabled():
            raise ConfigError(f"sums of a GPU have no fixed order; set +trainer.deterministic=true, {otherwise}")

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.global_step + 1) % self.every_n_steps:
            return
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.batches, self.buffers = [], copy(dict(pl_module.named_buffers()))
        self.batches.append((batch, batch_idx))

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        if not self.batches:
            return
        first = copy_gradients(pl_module)
        pl_module.zero_grad()
        overwrite(dict(pl_module.named_buffers()), self.buffers)
        self.compute_gradients(trainer, pl_module)
        self.compare(trainer, trainer.global_step + 1, "gradients", first, copy_gradients(pl_module))
        self.weights, self.states = copy(list_learning(pl_module)), deepcopy(optimizer.state_dict())
        for group in self.states["param_groups"]:
            if trainer.global_step <= group["from_step"]:
                group.pop("step", None)  # as Task.drop_frozen_gradients will do

    def compute_gradients(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go forward and backward through the batches of this step again; sums of metrics stay as they are."""
        sums = [(metric, copy(metric.metric_state)) for metric in pl_module.training_sums().values()]
        for batch, batch_idx in self.batches:
            waits = isinstance(trainer.strategy, DDPStrategy) and batch_idx != self.batches[-1][1]
            with trainer.strategy.block_backward_sync() if waits else nullcontext():
                loss = trainer.strategy.training_step(batch, batch_idx)
                trainer.strategy.backward(loss / trainer.accumulate_grad_batches, None)
        for metric, state in sums:
            for name, value in state.items():
                setattr(metric, name, value)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self.batches or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        (optimizer,), weights = trainer.optimizers, list_learning(pl_module)
        first, after = copy(weights), deepcopy(optimizer.state_dict())
        overwrite(weights, self.weights)
        optimizer.load_state_dict(self.states)
        optimizer.step()
        self.compare(trainer, trainer.global_step, "weights", first, weights)
        states = (list_tensors(state["state"]) for state in (after, optimizer.state_dict()))
        self.compare(trainer, trainer.global_step, "optimizer state", *states)
        optimizer.load_state_dict(after)  # the schedule has moved on
        self.batches, self.weights, self.states = [], {}, {}

    def compare(
        self, trainer: pl.Trainer, step: int, what: str, first: dict[str, Tensor], second: dict[str, Tensor]
    ) -> None:
        """Raise RecomputationError if two results of a step differ in any bit."""
        names = find_differences(first, second)
        if not names:
            return
        path = Path(trainer.default_root_dir) / "recomputed" / f"step_{step}_rank_{trainer.global_rank}.pt"
        results = {"first": first, "second": second, "batches": list_tensors([batch for batch, _ in self.batches])}
        file.write({"step": step, "names": names, **{key: copy(value, "cpu") for key, value in results.items()}}, path)
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise RecomputationError(
            f"step {step}, computed twice, gave other {what} the second time, in {names[0]}{others}: the processor or "
            f"its memory errs, or an operation has no fixed order; both results are in {path}; after a check of the "
            f"machine, resume={trainer.default_root_dir} resumes from the last good state"
        )


def copy(tensors: dict[str, Tensor], device: str | None = None) -> dict[str, Tensor]:
    return {name: tensor.detach().clone().to(device or tensor.device) for name, tensor in tensors.items()}


def list_learning(module: pl.LightningModule) -> dict[str, Tensor]:
    """List the parameters that an optimizer updates, rather than a teacher that follows."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def copy_gradients(module: pl.LightningModule) -> dict[str, Tensor]:
    """Copy the gradients and buffers of a module."""
    gradients = {f"{name}.grad": p.grad for name, p in module.named_parameters() if p.grad is not None}
    return copy(gradients | dict(module.named_buffers()))


def overwrite(tensors: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in values.items():
            tensors[name].copy_(value)
