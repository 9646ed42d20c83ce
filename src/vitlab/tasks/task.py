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
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric

from vitlab.data.batches.batch import Batch
from vitlab.distributed.buffers import share_buffers
from vitlab.distributed.fully_sharded import FullySharded, gather, share_again
from vitlab.distributed.sharding import own_parameters, whole
from vitlab.errors import ConfigError, DataError
from vitlab.models import head_names, parameter_kinds
from vitlab.optim import Optimization, Schedule
from vitlab.ranges import Seed
from vitlab.seeding import counted_seed, seed_device
from vitlab.tasks.finite_mean import FiniteMean
from vitlab.tasks.limits import partial_evaluation
from vitlab.tasks.loop_state import placed_loops
from vitlab.tasks.metric_sums import add_sums, sums_of
from vitlab.tasks.training_data import TrainingData

STAGES = ("fit", "val", "test")


class Task(pl.LightningModule):
    """A model, and what is minimised: a regime gives `training_losses`, `evaluated` and the names it may be judged by.

    `schedule` takes a number of optimizer steps. Metrics stay on the device; training sums are read once per logging
    interval, through `training_metrics`. `num_steps` and `record` are known from `plan` on. Raises ValueError for a
    `monitor` that nobody logs.
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

    def evaluated(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        """Compute the loss of each sample (B,), and what callbacks may want to know, by name."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.optimization.groups(dict(self.model.named_parameters()), parameter_kinds(self.model))

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        """Take what is known before the first step: the number of steps, the data, and what checkpoints store about the
        run, in plain types. Raises ConfigError when the data is of another kind than the task learns from."""
        if datamodule.images.num_views > 1 and not self.compares_views:
            raise ConfigError(
                f"the crop gives {datamodule.images.num_views} views of each image, and {type(self).__name__} takes "
                "one; choose another crop="
            )
        self.num_steps, self.record = num_steps, record

    def configure_model(self) -> None:
        """Leave each device its share of the weights, with a strategy that shards them."""
        if isinstance(self.trainer.strategy, FullySharded):
            for model in self.whole_models():
                self.trainer.strategy.shard(model)

    def whole_models(self) -> list[nn.Module]:
        """The models that are called as a whole, and so can be sharded."""
        return [self.model]

    def for_first_rank(self) -> "Task | None":
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

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        if self.global_step and self.global_step in {group["from_step"] for group in self.groups}:
            self.train()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        seed_device(self.device, counted_seed("device", self.seed, self.global_step, micro_batch, self.global_rank))
        loss = self.training_losses(batch)
        self.losses["fit"].update(loss.detach())
        return loss.mean()

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Leave out what learns only from a later step on. Its gradients exist, since several devices agree once which
        of them they exchange. An optimizer that counts the steps of a group (LAMB) counts from then on."""
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
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)
        self.clip_gradients(float("inf") if gradient_clip_val is None else gradient_clip_val)

    def clip_gradients(self, limit: float) -> None:
        """Clip the total norm, and keep it."""
        self.keep_norm(nn.utils.clip_grad_norm_(self.parameters(), limit))

    def keep_norm(self, norm: Tensor) -> None:
        """Keep a norm for train/grad_norm; a step that overflows in float16 is skipped, and does not count."""
        self.grad_norm.update(whole(norm))

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
        gather(self)

    def on_test_epoch_start(self) -> None:
        gather(self)

    def validation_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        return self._evaluation_step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        return self._evaluation_step(batch, "test")

    def _evaluation_step(self, batch: Batch, stage: str) -> dict[str, Any] | None:
        if not len(batch.index):  # no image of it could be read
            return None
        loss, outputs = self.evaluated(batch, stage)
        self.losses[stage].update(loss)
        self.scored.update(loss.new_full((), len(loss)))  # a Python number would make the host wait for the device
        return outputs

    def on_validation_epoch_end(self) -> None:
        share_again(self)
        self._close_evaluation("val", "val")

    def on_test_epoch_end(self) -> None:
        self._close_evaluation("test", self.trainer.datamodule.test_split)

    def _close_evaluation(self, stage: str, split: str) -> None:
        """Log the metrics of a split, once every sample is known to have been scored."""
        self._check_count(split, int(self.scored.compute()))
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

    def _check_count(self, split: str, scored: int) -> None:
        skipped = self.count_skipped(split)
        expected = len(self.trainer.datamodule.splits[split])
        if not partial_evaluation(self.trainer) and scored + skipped != expected:
            raise DataError(
                f"{scored} samples of the {split} split were scored and {skipped} skipped, but it holds {expected}"
            )

    def count_skipped(self, split: str) -> int:
        """Count the images of a split that no process could read."""
        device = self.trainer.strategy.root_device  # after the test Lightning has moved the task itself to the CPU
        own = torch.tensor(len(self.trainer.datamodule.skipped[split]), device=device)
        return int(self.trainer.strategy.reduce(own, reduce_op="sum"))

    # -- optimization

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Take the parameters by name: a strategy may have put others, of a part of each tensor, in their place."""
        own = own_parameters(self)
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
        checkpoint["sums"] = {name: sums_of(metric) for name, metric in self.summed().items()}

    def summed(self) -> dict[str, Metric]:
        """List what training sums up between two log entries."""
        return {"loss": self.losses["fit"], "grad_norm": self.grad_norm, **dict(self.metrics["fit"].items())}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Place the run by its number of optimizer steps alone. The first rank goes on with the sums of all ranks."""
        summed = self.summed() if self.global_rank == 0 else {}
        for name, sums in checkpoint.get("sums", {}).items():
            if name in summed:  # a resume may have other metrics
                add_sums(summed[name], sums)
        if "loops" in checkpoint:
            steps = self.trainer.datamodule.trained_steps_per_epoch()
            checkpoint["loops"]["fit_loop"] = placed_loops(self.trainer, checkpoint["global_step"], steps)
