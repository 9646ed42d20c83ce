"""Image classification, supervised.

B batch, K classes
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import STEP_OUTPUT, OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, MetricCollection, SumMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from vitlab.counted import counted_seed, seed_device
from vitlab.data.batch import Batch
from vitlab.errors import DataError
from vitlab.losses import softmax_cross_entropy
from vitlab.optim import Schedule, parameter_groups


class Predictions(NamedTuple):
    """What an evaluation step says of each sample: logits (B, K) and loss (B,), for callbacks."""

    logits: Tensor
    loss: Tensor


class Classification(pl.LightningModule):
    """Cross-entropy on (mixed) classes; top-1, top-5, loss, and calibration error at test.

    `optimizer` takes parameter groups, `schedule` a number of optimizer steps. Metrics stay on the device; training
    sums are read once per logging interval, through `training_metrics`. `record` is what checkpoints say about the
    run, in plain types; `num_steps` is how many optimizer steps the run has; both are set before the fit.
    """

    losses: Any  # metrics by stage: fit, val, test
    accuracies: Any

    def __init__(
        self,
        *,
        model: nn.Module,
        num_classes: int,
        optimizer: Callable[..., Optimizer],
        schedule: Callable[[int], Schedule],
        lr: float,
        weight_decay: float,
        layer_decay: float,
        label_smoothing: float,
        seed: int,
    ):
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing {label_smoothing} is not in [0, 1)")
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.groups = parameter_groups(model, lr=lr, weight_decay=weight_decay, layer_decay=layer_decay)
        self.num_steps = 0
        self.record: dict[str, Any] = {}

        def accuracy(top_k: int) -> MulticlassAccuracy:
            return MulticlassAccuracy(num_classes, top_k=min(top_k, num_classes), average="micro", validate_args=False)

        self.losses = nn.ModuleDict({split: MeanMetric(nan_strategy="disable") for split in ("fit", "val", "test")})
        self.accuracies = nn.ModuleDict(
            {
                split: MetricCollection({"acc1": accuracy(1), "acc5": accuracy(5)}, compute_groups=False)
                for split in ("fit", "val", "test")
            }
        )
        self.grad_norm = MeanMetric(nan_strategy="disable")
        self.scored = SumMetric(nan_strategy="disable")
        self.calibration = MulticlassCalibrationError(num_classes, n_bins=15, norm="l1", validate_args=False)

    @staticmethod
    def monitors() -> list[str]:
        """Names that a run may be judged by."""
        return ["val/loss", "val/acc1", "val/acc5"]

    def forward(self, inputs: Tensor) -> Tensor:
        """Patches (B, N, C·P·P) or images (B, C, H, W) -> logits (B, K)."""
        return self.model(inputs)

    def _loss_and_logits(self, batch: Batch, label_smoothing: float) -> tuple[Tensor, Tensor]:
        """(B,) and (B, K)."""
        logits = self.model(*batch.arguments())
        return softmax_cross_entropy(logits, batch.target, label_smoothing), logits

    # -- training

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        seed_device(self.device, counted_seed("device", self.seed, self.global_step, micro_batch, self.global_rank))
        loss, logits = self._loss_and_logits(batch, self.label_smoothing)
        classes = batch.target if batch.target.ndim == 1 else batch.target.argmax(dim=1)
        self.losses["fit"].update(loss.detach())
        self.accuracies["fit"].update(logits.detach(), classes)
        return loss.mean()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the total norm of the gradients, and keep it; Lightning's own refuses fused optimizers."""
        limit = float("inf") if gradient_clip_val is None else gradient_clip_val
        self.grad_norm.update(nn.utils.clip_grad_norm_(self.parameters(), limit))

    def training_metrics(self) -> dict[str, float]:
        """Means since the last call, read from the device at once: train/loss (nats), train/acc1, train/acc5 and
        train/grad_norm. Of mixed images the accuracy counts the larger part."""
        values = {"train/loss": self.losses["fit"].compute(), "train/grad_norm": self.grad_norm.compute()}
        values |= {f"train/{name}": value for name, value in self.accuracies["fit"].compute().items()}
        for metric in (self.losses["fit"], self.grad_norm, self.accuracies["fit"]):
            metric.reset()
        return dict(zip(values, torch.stack([v.float() for v in values.values()]).tolist(), strict=True))

    # -- evaluation

    def validation_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        return self._evaluation_step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        predictions = self._evaluation_step(batch, "test")
        if predictions is not None:
            self.calibration.update(predictions["predictions"].logits, batch.target)
        return predictions

    def _evaluation_step(self, batch: Batch, stage: str) -> dict[str, Predictions] | None:
        if not len(batch.target):  # no image of it could be read
            return None
        loss, logits = self._loss_and_logits(batch, label_smoothing=0.0)
        self.losses[stage].update(loss)
        self.accuracies[stage].update(logits, batch.target)
        self.scored.update(len(loss))
        return {"predictions": Predictions(logits.float(), loss)}

    def on_validation_epoch_end(self) -> None:
        self._close_evaluation("val", "val", {})

    def on_test_epoch_end(self) -> None:
        split = self.trainer.datamodule.test_split
        self._close_evaluation("test", split, {f"{split}/ece": self.calibration.compute()})
        self.calibration.reset()

    def _close_evaluation(self, stage: str, split: str, more: dict[str, Tensor]) -> None:
        """Log the metrics of a split, once every sample is known to have been scored."""
        values = {f"{split}/loss": self.losses[stage].compute()}
        values |= {f"{split}/{name}": value for name, value in self.accuracies[stage].compute().items()}
        values = {name: float(value) for name, value in (values | more).items()}
        self._check_count(split, int(self.scored.compute()))
        for metric in (self.losses[stage], self.accuracies[stage], self.scored):
            metric.reset()
        self.log_dict(values, logger=False)
        if self.trainer.sanity_checking:
            return
        for logger in self.trainer.loggers:
            logger.log_metrics(values, step=self.global_step)

    def _check_count(self, split: str, scored: int) -> None:
        skipped = self.count_skipped(split)
        expected = len(self.trainer.datamodule.splits[split])
        if not partial_evaluation(self.trainer) and scored + skipped != expected:
            raise DataError(
                f"{scored} samples of the {split} split were scored and {skipped} skipped, but it holds {expected}"
            )

    def count_skipped(self, split: str) -> int:
        """Images of a split that no process could read."""
        own = torch.tensor(len(self.trainer.datamodule.skipped[split]), device=self.device)
        return int(self.trainer.strategy.reduce(own, reduce_op="sum"))

    # -- optimization

    def configure_optimizers(self) -> OptimizerLRScheduler:
        groups = [{key: value for key, value in group.items() if key != "names"} for group in self.groups]
        optimizer = self.optimizer(groups)
        self._configured = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        scheduler = LambdaLR(optimizer, self.schedule(self.num_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        """The config is the truth: a resumed run takes learning rate and the like from it, not from the checkpoint."""
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

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Where a run goes on is told by its number of optimizer steps alone."""
        if "loops" in checkpoint:
            steps = self.trainer.datamodule.trained_steps_per_epoch()
            place_loops(checkpoint["loops"]["fit_loop"], checkpoint["global_step"], steps, self.trainer)


def partial_evaluation(trainer: pl.Trainer) -> bool:
    """Whether this trainer leaves samples out on purpose: fast_dev_run or limit_val_batches, limit_test_batches."""
    limit = trainer.limit_val_batches if trainer.validating or trainer.training else trainer.limit_test_batches
    return bool(trainer.fast_dev_run) or trainer.sanity_checking or leaves_out(limit)


def leaves_out(limit: int | float) -> bool:
    """Whether a limit of Lightning's is below everything: 1.0 is all batches, and 1 is one."""
    return isinstance(limit, int) or limit != 1.0


def place_loops(fit_loop: dict[str, Any], global_step: int, steps_per_epoch: int, trainer: pl.Trainer) -> None:
    """Write Lightning's progress counters for a run that has done exactly `global_step` optimizer steps, with the
    validations that were due by then."""
    epoch, step = divmod(global_step, steps_per_epoch)
    accumulation = trainer.accumulate_grad_batches

    def count(current: int, total: int, *names: str) -> dict[str, dict[str, int]]:
        return {"current": dict.fromkeys(names, current), "total": dict.fromkeys(names, total)}

    whole = ("ready", "started", "processed", "completed")
    epochs = count(epoch, epoch, *whole)
    if step:  # in the midst of an epoch, which has started
        for part in epochs.values():
            part["ready"] = part["started"] = epoch + 1
    fit_loop["epoch_progress"].update(epochs)
    batches = count(step * accumulation, global_step * accumulation, *whole)
    fit_loop["epoch_loop.batch_progress"].update({**batches, "is_last_batch": False})
    fit_loop["epoch_loop.scheduler_progress"].update(count(step, global_step, "ready", "completed"))
    optimizer = fit_loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    optimizer["step"].update(count(step, global_step, "ready", "completed"))
    optimizer["zero_grad"].update(count(step, global_step, "ready", "started", "completed"))
