"""Linear probing: how well a linear classifier does on the features of a frozen model, at every learning rate of a grid
at once (He et al., 2022, arXiv:2111.06377, appendix A.1; Oquab et al., 2024, arXiv:2304.07193, appendix B.3).

B batch, D features, K classes, L learning rates
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from vitlab.data.batches.batch import Batch
from vitlab.errors import ConfigError
from vitlab.models import find_heads, parameter_kinds, represent
from vitlab.monitors import format_metric
from vitlab.ranges import Count, Positive
from vitlab.tasks.classification import Classification
from vitlab.tasks.label_metrics import ranks
from vitlab.tasks.per_head_metrics import PerHeadMetrics
from vitlab.tasks.training_data import TrainingData


class LinearProbe(Classification):
    """One linear head for each learning rate of `lr_grid`, which the optimizer's lr_scaling scales; its lr is not used.
    All start alike, see the same features of the frozen model, and learn as if each were alone.

    `batch_norm` normalises the features first, without a learned scale (He et al.). A validation scores every head:
    val/acc1 and val/loss are those of the best by val/acc1, the others have names such as val/acc1_lr_0.1. The best
    then becomes the model's own head, batch normalisation included, so that the model is a classifier like any other.
    In training, the loss is the mean over all heads, and the accuracy that of the last best. Raises ValueError for a
    grid that is empty or names a rate twice, and for a model whose head is not one linear layer of K classes.
    """

    compilable = False
    heads: Any  # L linear heads
    best: Tensor  # (1,), which head was the best

    def __init__(
        self, *, model: nn.Module, lr_grid: list[Positive], batch_norm: bool, num_classes: Count, **others: Any
    ):
        if not lr_grid or len(set(lr_grid)) < len(lr_grid):
            raise ValueError(f"lr_grid {lr_grid} must be a list of different learning rates")
        own = find_heads(model)
        if len(own) != 1 or own[0].out_features != num_classes:
            raise ValueError(
                f"{type(model).__name__} has no linear head of {num_classes} classes that a linear probe could "
                "replace; choose another model"
            )
        self.lr_grid = lr_grid
        super().__init__(model=model, num_classes=num_classes, **others)
        norm = nn.BatchNorm1d(own[0].in_features, affine=False, eps=1e-6)  # the authors' epsilon
        self.norm: nn.Module = norm if batch_norm else nn.Identity()
        self.register_buffer("best", torch.zeros(1, dtype=torch.long))
        self.per_head = PerHeadMetrics(len(lr_grid), ranks(num_classes))
        self.figures: dict[str, list[float]] = {}  # by head, at the last validation

    def monitors(self) -> list[str]:
        return ["val/loss", *(f"val/acc{k}" for k in ranks(self.num_classes))]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Train heads beside the model; the model itself does not learn."""
        self.heads = nn.ModuleList(copy.deepcopy(find_heads(self.model)[0]) for _ in self.lr_grid)
        self.heads.requires_grad_(True)
        self.model.requires_grad_(False)
        return self.optimization.make_groups(
            dict(zip(self.lr_grid, self.heads, strict=True)), parameter_kinds(self.heads[0])
        )

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        devices = datamodule.trainer.world_size * datamodule.trainer.accumulate_grad_batches
        if isinstance(self.norm, nn.BatchNorm1d) and datamodule.global_batch_size == devices:
            raise ConfigError(
                "task.batch_norm=true needs at least two images at a time on a device; raise data.device_batch_size or "
                "global_batch_size"
            )

    # -- training

    def all_logits(self, batch: Batch) -> Tensor:
        """Give the logits of every head. -> (B, L, K)"""
        with torch.no_grad():
            features = represent(self.model, *batch.view.arguments())  # (B, D)
        with torch.autocast(self.device.type, enabled=False):
            features = self.norm(features.float())
            weight = torch.cat([head.weight for head in self.heads])  # (L·K, D)
            bias = torch.cat([head.bias for head in self.heads])
            return F.linear(features, weight, bias).unflatten(1, (len(self.heads), -1))

    def forward(self, *inputs: Any) -> Tensor:
        """Compute the logits of the model's own head (B, K)."""
        features = represent(self.model, *inputs)
        with torch.autocast(self.device.type, enabled=False):  # fp32: a folded mean drowns small features in bf16
            return find_heads(self.model)[0](features.float())

    def all_losses(self, loss: Callable[..., Tensor], logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Compute the loss of every head. (B, L, K) and (B,) or (B, K) -> (B, L)"""
        L = logits.shape[1]
        return loss(logits.flatten(0, 1), target.repeat_interleave(L, dim=0), **options).unflatten(0, (-1, L))

    def training_losses(self, batch: Batch) -> Tensor:
        logits = self.all_logits(batch)
        self.count("fit", logits.detach().index_select(1, self.best)[:, 0], batch.target)
        losses = self.all_losses(self.loss, logits, batch.target, **self.weighting())
        return losses.sum(dim=1)  # a sum: each head learns as if it were alone

    def training_metrics(self) -> dict[str, float]:
        values = super().training_metrics()
        return values | {"train/loss": values["train/loss"] / len(self.heads)}

    def clip_gradients(self, limit: float) -> None:
        """Clip each head by itself; train/grad_norm is their mean."""
        for head in self.heads:
            self.keep_norm(nn.utils.clip_grad_norm_(head.parameters(), limit))

    # -- evaluation

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        if stage != "val":
            return super().evaluate_batch(batch, stage)
        logits = self.all_logits(batch).float()
        losses = self.all_losses(self.plain_loss, logits, batch.target)
        self.per_head.update(logits, losses, self.learns_from.hard_labels(batch.target))
        return losses.mean(dim=1), {}

    def scores(self, stage: str) -> dict[str, Tensor]:
        """Give the scores of a stage; in validation those of the best head, which becomes the model's own."""
        if stage != "val":
            return super().scores(stage)
        self.losses[stage].reset()  # summed over all heads
        found = {name: value.reshape(-1) for name, value in self.per_head.compute().items()}  # (L,) each
        self.per_head.reset()
        self.figures = {name: value.tolist() for name, value in found.items()}
        order = list(zip(self.figures["acc1"], [-loss for loss in self.figures["loss"]], strict=True))
        self.best.fill_(order.index(max(order)))
        self.give_head()
        if not self.trainer.sanity_checking:
            for logger in self.trainer.loggers:
                logger.log_metrics(self.name_metrics(), step=self.global_step)
        return {name: value[self.best[0]] for name, value in found.items()}

    def name_metrics(self) -> dict[str, float]:
        """Name the figures of every head as they are logged."""
        return {
            f"val/{name}_lr_{lr:g}": value
            for name in ("acc1", "loss")
            for lr, value in zip(self.lr_grid, self.figures[name], strict=True)
        }

    @torch.no_grad()
    def give_head(self) -> None:
        """Write the best head into the model: w·(x - μ)/σ + b is (w/σ)·x + (b - (w/σ)·μ)."""
        head, own = self.heads[int(self.best)], find_heads(self.model)[0]
        weight, bias = head.weight.double(), head.bias.double()
        if isinstance(self.norm, nn.BatchNorm1d):
            mean, variance = self.norm.running_mean, self.norm.running_var
            assert mean is not None
            assert variance is not None
            weight = weight / (variance.double() + self.norm.eps).sqrt()
            bias = bias - weight @ mean.double()
        own.weight.copy_(weight)
        own.bias.copy_(bias)

    def on_test_start(self) -> None:
        """Print the heads beside each other after training; the model has the head of the best validation."""
        super().on_test_start()
        if not self.figures or not self.trainer.is_global_zero:
            return
        table = Table("lr", "val/acc1", "val/loss", "", title="heads at the last validation", title_justify="left")
        for number, lr in enumerate(self.lr_grid):
            kept = "kept" if number == int(self.best) else ""
            scores = [format_metric(name, self.figures[name][number]) for name in ("acc1", "loss")]
            table.add_row(f"{lr:g}", *scores, kept)
        Console().print(table)
