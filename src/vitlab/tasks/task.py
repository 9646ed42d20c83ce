"""What every way to train shares: optimizer steps, exact evaluation, checkpoints. A regime says its loss and metrics.

B batch
"""

import copy
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import STEP_OUTPUT, OptimizerLRScheduler
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric
from torchmetrics.utilities.distributed import gather_all_tensors

from vitlab.data.batches.batch import Batch
from vitlab.distributed.buffers import share_buffers
from vitlab.distributed.fully_sharded import FullySharded, reshard_weights, unshard_weights
from vitlab.distributed.sharding import get_own_parameters
from vitlab.errors import ConfigError, DataError
from vitlab.models import head_names, parameter_kinds
from vitlab.optim import Optimization, Schedule
from vitlab.ranges import Seed
from vitlab.seeding import make_seed, seed_device
from vitlab.tasks.loop_state import build_loop_state
from vitlab.tasks.training_data import TrainingData

STAGES = ("fit", "val", "test")


class Task(pl.LightningModule):
    """A model, and what is minimised: a regime gives `training_losses`, `evaluate_batch` and its monitors.

    `schedule` takes a number of optimizer steps. Metrics stay on the device; training sums are read once per logging
    interval, through `training_metrics`. `num_steps` and `record` are known from `plan` on. Raises ValueError for a
    `monitor` that nobody logs.

    One training step of the default run, in the order in which it happens. Lightning calls all functions that are not
    indented further; a test compares the names with the calls of a real step.

     1. `Loader.__iter__`: take the next batch from the workers, one ahead of the step: uint8 views (B, C, H, W), target
        and places in the split (B,).
     2. `ImageDataModule.on_before_batch_transfer`: refuse, or skip, files that could not be read.
     3. `RawBatch.to`: copy the batch to the device, without waiting.
     4. `ImageDataModule.on_after_batch_transfer`: normalise, mix, and cut into float patches (B, N, C·P·P).
     5. `Interruption.on_train_batch_start`: after a signal, save the state and leave.
     6. `StepLog.on_train_batch_start`: note how long the host has waited for the batch.
     7. `LatestState.on_train_batch_start`: save the state after the step before, if it is due.
     8. `Task.training_step`: seed dropout and drop path, and give the mean loss ().
         9. `Task.unfreeze_due_groups`: leave evaluation mode in parts that begin to learn.
        10. `Supervised.training_losses`: the losses (B,) of the regime, and its training metrics.
        11. `VisionTransformer.forward`: patches and their grid -> logits (B, K).
        12. `softmax_cross_entropy`: the loss of `conf/loss/`, logits and target -> (B,).
        Then Lightning clears the gradients and calls backward. Steps 1 to 12 are those of a micro-batch; what follows
        comes once `accumulate_grad_batches` of them are done.
    13. `Task.configure_gradient_clipping`: prepare the gradients for the optimizer, which Lightning then steps.
        14. `Task.drop_frozen_gradients`: drop those of parts that learn later.
        15. `Task.clip_gradients`: clip the total norm, and keep it for train/grad_norm.
    16. `prepend_warmup`: the learning rate of the next step, by the schedule.
    17. `StepLog.on_train_batch_end`: every `log_every_n_steps` steps, read the sums from the device and log them.
    18. `WeightAverage.on_train_batch_end`, with callbacks=[default,ema]: move the average towards the weights.

    A validation, when it is due, comes after the last of these.
    """

    compilable = True  # whether training calls the model itself, not a part of it
    compares_views = False  # whether it takes several views of an image
    losses: Any  # metrics by stage
    metrics: Any

    def __init__(
        self,
        *,
        model: nn.Module,
        optimization: Optimization,
        schedule: Callable[[int], Schedule],
        monitor: str,
        seed: Seed,
    ):
        super().__init__()
        if monitor not in self.monitors():
            raise ValueError(
                f"monitor '{monitor}' is not a metric that every validation of the task gives; use one of: "
                f"{', '.join(self.monitors())}"
            )
        self.model = model
        self.optimization = optimization
        self.schedule = schedule
        self.seed = seed
        self.groups = self.parameter_groups()
        own = {id(parameter): name for name, parameter in self.named_parameters()}
        self.learning = [[own[id(parameter)] for parameter in group["params"]] for group in self.groups]
        self.num_steps = 0
        self.record: dict[str, Any] = {}
        self.losses = nn.ModuleDict({stage: MeanMetric(nan_strategy="disable") for stage in STAGES})
        self.metrics = nn.ModuleDict({stage: self.new_metrics(stage) for stage in STAGES})
        self.grad_norm = FiniteMean()
        self.scored = SumMetric(nan_strategy="disable")

    # -- what a regime says

    def monitors(self) -> list[str]:
        """List the metrics that a run may be judged by."""
        return ["val/loss"]

    def new_metrics(self, stage: str) -> MetricCollection:
        """Make what is measured beside the loss in a stage of `STAGES`, by names without the split."""
        return MetricCollection({})

    def training_losses(self, batch: Batch) -> Tensor:
        """Compute the losses (B,) whose mean is minimised."""
        raise NotImplementedError

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        """Compute the loss of each sample (B,), and what callbacks may want to know, by name."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.optimization.groups(dict(self.model.named_parameters()), parameter_kinds(self.model))

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        """Take what is known before the first step: the number of steps, the data, and what checkpoints store about the
        run, in plain types. Raises ConfigError when the data is of another kind than the task learns from."""
        if datamodule.images.num_views > 1 and not self.compares_views:
            raise ConfigError(
                f"the crop gives {datamodule.images.num_views} views of each image, but {type(self).__name__} takes "
                "one; choose another crop="
            )
        self.num_steps, self.record = num_steps, record

    def configure_model(self) -> None:
        """Leave each device its share of the weights, with a strategy that shards them."""
        if isinstance(self.trainer.strategy, FullySharded):
            for model in self.shardable_models():
                self.trainer.strategy.shard(model)

    def shardable_models(self) -> list[nn.Module]:
        """The models that are called as a whole, and so can be sharded."""
        return [self.model]

    def task_on_rank_zero(self) -> "Task | None":
        """Return, on the first rank, this task for work that no other rank takes part in: where its model is sharded, a
        copy with the whole model, and nothing else. Return None on the other ranks, which call it too. It is called
        when all batches of an evaluation are done."""
        strategy = self.trainer.strategy
        if not isinstance(strategy, FullySharded):
            return self if self.trainer.is_global_zero else None
        model = strategy.copy_unsharded(self.model)
        if model is None:
            return None
        task = copy.copy(self)
        task._modules = {"model": model}
        return task

    # -- training

    def train(self, mode: bool = True) -> "Task":
        """Keep parts that do not learn (yet) in evaluation mode: no dropout, constant statistics."""
        super().train(mode)
        step = self._trainer.global_step if self._trainer is not None else 0
        groups = [group for group in self.groups if group["from_step"] <= step]
        if {name for group in groups for name in group["names"]} <= head_names(self.model):
            self.model.eval()
        own, named = dict(self.named_parameters()), zip(self.groups, self.learning, strict=True)
        learning = {id(own[name]) for group, names in named if group["from_step"] <= step for name in names}
        for module in self.model.modules() if mode else ():
            parameters = [id(parameter) for parameter in module.parameters()]
            if parameters and learning.isdisjoint(parameters):
                module.eval()
        return self

    def unfreeze_due_groups(self) -> None:
        """Leave evaluation mode in the parts that begin to learn with this step."""
        if self.global_step and self.global_step in {group["from_step"] for group in self.groups}:
            self.train()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.unfreeze_due_groups()
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        seed_device(self.device, make_seed("device", self.seed, self.global_step, micro_batch, self.global_rank))
        loss = self.training_losses(batch)
        self.losses["fit"].update(loss.detach())
        return loss.mean()

    def drop_frozen_gradients(self, optimizer: Optimizer) -> None:
        """Drop the gradients of groups that learn only from a later step on. They exist, since several devices agree
        once which gradients they exchange. An optimizer that counts the steps of a group (LAMB) counts from then on."""
        for group in optimizer.param_groups:
            if self.global_step <= group["from_step"]:
                group.pop("step", None)
            if self.global_step < group["from_step"]:
                for parameter in group["params"]:
                    parameter.grad = None

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip here, since Lightning refuses fused optimizers, whose gradients are still scaled for float16 at this
        point."""
        self.drop_frozen_gradients(optimizer)
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)
        self.clip_gradients(float("inf") if gradient_clip_val is None else gradient_clip_val)

    def clip_gradients(self, limit: float) -> None:
        """Clip the total norm, and keep it."""
        self.keep_norm(nn.utils.clip_grad_norm_(self.parameters(), limit))

    def keep_norm(self, norm: Tensor) -> None:
        """Keep a norm for train/grad_norm; a step that overflows in float16 is skipped, and does not count."""
        self.grad_norm.update(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def last_lr(self) -> float:
        """Return the highest learning rate of the last optimizer step; the schedule has moved on since."""
        highest: float = max(group["initial_lr"] for group in self.trainer.optimizers[0].param_groups)
        return highest * self.schedule(self.num_steps)(self.global_step - 1)

    def training_metrics(self) -> dict[str, float]:
        """Read the means since the last call from the device, at once: train/loss, train/grad_norm and the regime's."""
        values = {"train/loss": self.losses["fit"].compute(), "train/grad_norm": self.grad_norm.compute()}
        values |= {f"train/{name}": value for name, value in self.metrics["fit"].compute().items()}
        for metric in (self.losses["fit"], self.grad_norm, self.metrics["fit"]):
            metric.reset()
        return dict(zip(values, torch.stack([v.float() for v in values.values()]).tolist(), strict=True))

    # -- evaluation

    def on_validation_epoch_start(self) -> None:
        """Evaluate on all ranks with the first one's statistics, which are the ones that are kept."""
        share_buffers(self)
        unshard_weights(self)

    def on_test_epoch_start(self) -> None:
        unshard_weights(self)

    def validation_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        return self._evaluation_step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        return self._evaluation_step(batch, "test")

    def _evaluation_step(self, batch: Batch, stage: str) -> dict[str, Any] | None:
        if not len(batch.index):  # no image of it could be read
            return None
        loss, outputs = self.evaluate_batch(batch, stage)
        self.losses[stage].update(loss)
        self.scored.update(loss.new_full((), len(loss)))  # a Python number would make the host wait for the device
        return outputs

    def on_validation_epoch_end(self) -> None:
        reshard_weights(self)
        self._close_evaluation("val", "val")

    def on_test_epoch_end(self) -> None:
        self._close_evaluation("test", self.trainer.datamodule.test_split)

    def _close_evaluation(self, stage: str, split: str) -> None:
        """Log the metrics of a split, once every sample is known to have been scored."""
        scored, skipped = int(self.scored.compute()), self.count_skipped(split)
        expected = len(self.trainer.datamodule.splits[split])
        if not self.is_partial() and scored + skipped != expected:
            raise DataError(
                f"{scored} samples of the {split} split were scored and {skipped} skipped, but it holds {expected}"
            )
        self.scored.reset()
        figures = {f"{split}/{name}": float(value) for name, value in self.scores(stage).items()}
        self.log_dict(figures, logger=False)
        if self.trainer.sanity_checking:
            return
        for logger in self.trainer.loggers:
            logger.log_metrics(figures, step=self.global_step)

    def scores(self, stage: str) -> dict[str, Tensor]:
        """Give loss and metrics of a stage by their names without the split, and reset them."""
        values = {"loss": self.losses[stage].compute(), **self.metrics[stage].compute()}
        self.losses[stage].reset()
        self.metrics[stage].reset()
        return values

    def is_partial(self) -> bool:
        """Whether this evaluation leaves samples out on purpose: fast_dev_run, or a limit of the trainer."""
        trainer = self.trainer
        limit = trainer.limit_val_batches if trainer.validating or trainer.training else trainer.limit_test_batches
        return bool(trainer.fast_dev_run) or trainer.sanity_checking or is_below_all(limit)

    def count_skipped(self, split: str) -> int:
        """Count the images of a split that no process could read."""
        device = self.trainer.strategy.root_device  # after the test Lightning has moved the task itself to the CPU
        own = torch.tensor(len(self.trainer.datamodule.skipped[split]), device=device)
        return int(self.trainer.strategy.reduce(own, reduce_op="sum"))

    # -- optimization

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Take the parameters by name: a strategy may have put others, of a part of each tensor, in their place."""
        own = get_own_parameters(self)
        for group, names in zip(self.groups, self.learning, strict=True):
            group["params"] = [own[name] for name in names]
        optimizer = self.optimization.optimizer(self.groups)
        self._configured = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        scheduler = LambdaLR(optimizer, self.schedule(self.num_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        """Take learning rate and the like from the config, also in a resumed run, rather than from the checkpoint."""
        self.train()  # Lightning leaves every part in the mode that it finds it in
        scheduler = self.lr_schedulers()
        factor = self.schedule(self.num_steps)(self.global_step)
        for group, configured in zip(self.optimizers().param_groups, self._configured, strict=True):
            group.update(configured)
            group["initial_lr"] = configured["lr"]
            group["lr"] = configured["lr"] * factor
        scheduler.base_lrs = [configured["lr"] for configured in self._configured]

    # -- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["run"] = self.record
        checkpoint["num_optimizer_states"] = sum(len(state["state"]) for state in checkpoint["optimizer_states"])
        checkpoint["sums"] = {}
        for name, metric in self.training_sums().items():
            state = {key: value.detach() for key, value in metric.metric_state.items()}
            if self.trainer.world_size > 1:
                state = {key: torch.stack(gather_all_tensors(value)) for key, value in state.items()}
            checkpoint["sums"][name] = {key: value.cpu().clone() for key, value in state.items()}

    def training_sums(self) -> dict[str, Metric]:
        """List the metrics that add up between two log entries, by name."""
        return {"loss": self.losses["fit"], "grad_norm": self.grad_norm, **dict(self.metrics["fit"].items())}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Place the run by its number of optimizer steps alone. Each rank continues with its own sums; if there were
        more or fewer ranks, the first one continues with all of them."""
        metrics, rank, ranks = self.training_sums(), self.global_rank, self.trainer.world_size
        for name, state in checkpoint.get("sums", {}).items():
            if (metric := metrics.get(name)) is None:  # a resume may have other metrics
                continue
            for key, value in state.items():
                own = getattr(metric, key)
                of_ranks = value if value.ndim > own.ndim else value[None]
                if len(of_ranks) == ranks:
                    setattr(metric, key, own + of_ranks[rank].to(metric.device))
                elif rank == 0:
                    setattr(metric, key, own + of_ranks.sum(dim=0).to(metric.device))
        if "loops" in checkpoint:
            steps = self.trainer.datamodule.count_steps_per_epoch()
            checkpoint["loops"]["fit_loop"] = build_loop_state(self.trainer, checkpoint["global_step"], steps)


class FiniteMean(MeanMetric):
    """A mean that leaves out NaN and infinity; NaN if nothing is left. torchmetrics' own waits for the device to find
    them, or, if told not to look for them, ignores weights."""

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")

    def update(self, value: Tensor) -> None:  # no weight
        """Add values of any shape; those that are not finite do not count."""
        finite = value.isfinite()
        self.mean_value += value.where(finite, 0.0).sum()
        self.weight += finite.sum()


def is_below_all(limit: int | float) -> bool:
    """Whether a limit of Lightning's trainer leaves batches out: 1.0 is all batches, and 1 is one."""
    return isinstance(limit, int) or limit != 1.0
