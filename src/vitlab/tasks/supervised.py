"""Learn from labels: what tasks share whose images have one class, or several.

B batch, K classes
"""

from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from vitlab.data.batches.batch import Batch
from vitlab.data.targets import Answers, Captions, Classes, OneClass, SeveralClasses, SeveralTexts, Targets, Texts
from vitlab.errors import ConfigError, format_error
from vitlab.losses import evaluation_loss
from vitlab.models import ImageTextModel, MaskedAutoencoder, SelfDistilled
from vitlab.models.representation import classify_and_represent
from vitlab.monitors import METRICS
from vitlab.ranges import Count, Unsigned
from vitlab.tasks.known_classes import KnownClasses
from vitlab.tasks.label_metrics import build_metrics, list_metrics
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData

TASKS: dict[type[Targets], str] = {
    OneClass: "task=classification",
    SeveralClasses: "task=multilabel",
    Texts: "task=captioning",
    Captions: "task=contrastive",
    SeveralTexts: "task=contrastive",
    Answers: "task=answering",
}


class Predictions(NamedTuple):
    """What an evaluation step says of each sample: logits (B, K), loss (B,), and novelty (B,) if the task tells it, for
    callbacks."""

    logits: Tensor
    loss: Tensor
    novelty: Tensor | None = None


class Supervised(Task):
    """A loss on the logits of K classes and a target (B,) or (B, K).

    `loss` is a partial of a function of logits, target and its options, which hold in training; evaluation takes the
    function with those that it declares to be kept. `class_weights` are one factor on the loss for each class, or
    "balanced": inverse to how often a class is in an epoch's order, 1 in the mean over its samples, or as a kind of
    label says. Raises ValueError for other words, or another number of factors than classes.
    """

    temperature = 1.0  # by which logits are divided for probabilities: `vitlab.tasks.calibration`
    known: KnownClasses | None = None  # tells which images are of none of the classes
    learns_from: type[Classes]
    labels: str  # the field of a `vitlab.monitors.Metric` that makes it for such labels

    def __init__(
        self,
        *,
        model: nn.Module,
        loss: partial[Tensor],
        num_classes: Count,
        class_weights: str | list[Unsigned] | None,
        **others: Any,
    ):
        if isinstance(model, MaskedAutoencoder | SelfDistilled | ImageTextModel):
            raise ValueError(
                f"the model is a {type(model).__name__}, which has no head for classes; choose another, or the task "
                "that trains it: masked_autoencoding, self_distillation, contrastive"
            )
        self.num_classes = num_classes
        super().__init__(model=model, **others)
        if not isinstance(class_weights, list) and class_weights not in (None, "balanced"):
            raise ValueError(f"class_weights {class_weights} is neither balanced nor a list of factors")
        factors = torch.tensor(class_weights, dtype=torch.float32) if isinstance(class_weights, list) else None
        if factors is not None and (len(factors) != num_classes or not (factors.isfinite() & (factors >= 0)).all()):
            raise ValueError(
                f"class_weights holds {len(factors)} factors; give {num_classes}, one for each class, none below 0"
            )
        self.loss = loss
        self.plain_loss = evaluation_loss(loss)
        self.try_loss()
        if class_weights is not None and "class_weights" not in signature(loss.func).parameters:
            raise ValueError("the loss takes no class_weights; leave task.class_weights=null")
        self.class_weights = class_weights
        self.register_buffer("class_factors", factors, persistent=False)

    # -- what a kind of label says

    def probabilities(self, logits: Tensor) -> Tensor:
        """Turn logits into probabilities. (B, K) -> (B, K)"""
        raise NotImplementedError

    def predictions(self, logits: Tensor) -> Tensor:
        """Say which class an image has, (B,), or whether it has each, (B, K). (B, K) -> either"""
        raise NotImplementedError

    @staticmethod
    def balance_classes(counts: Tensor, num_images: int) -> Tensor:
        """Give factors that balance the classes, of which the images have that many, none of them 0. (K,) -> (K,)"""
        return counts.sum() / (len(counts) * counts)

    def try_loss(self) -> None:
        """Raise ValueError now for options that the loss refuses, for one that fails in training or evaluation, and for
        one that gives no value for each sample."""
        targets = torch.zeros(2, self.num_classes) if self.labels == "several_classes" else torch.zeros(2).long()
        name = f"{self.loss.func.__module__}.{self.loss.func.__name__}"
        for use, loss in (("training", self.loss), ("evaluation", self.plain_loss)):
            try:
                losses = loss(torch.zeros(2, self.num_classes), targets)
            except ValueError:
                raise
            except Exception as error:  # whatever the user's code raises
                raise ValueError(
                    f"the loss {name} fails in {use}, with {', '.join(loss.keywords) or 'no options'}: "
                    f"{format_error(error)}; it is called with logits (B, K), a target, and the options by their names"
                ) from error
            if losses.shape != (2,):
                raise ValueError(
                    f"the loss {name} gives the shape {tuple(losses.shape)} for 2 images; it should give one for each, "
                    "(B,)"
                )

    def weighting(self) -> dict[str, Tensor]:
        """Return the options of the loss that weigh the classes; none unless task.class_weights asks for it."""
        return {} if self.class_factors is None else {"class_weights": self.class_factors}

    # -- what they share

    def monitors(self) -> list[str]:
        return ["val/loss", *(f"val/{name}" for name in list_metrics(self.labels, "val", self.num_classes))]

    def new_metrics(self, stage: str) -> MetricCollection:
        return build_metrics(self.labels, stage, self.num_classes)

    def count(self, stage: str, logits: Tensor, target: Tensor) -> None:
        """Update the metrics of a stage with a batch, each with what it reads."""
        own = {name: metric for name, metric in self.metrics[stage].items() if name in METRICS}
        wanted = {METRICS[name].reads for name in own}
        given = {kind: logits if kind == "logits" else getattr(self, kind)(logits) for kind in wanted}
        for name, metric in own.items():
            metric.update(given[METRICS[name].reads], self.learns_from.hard_labels(target))

    def scores(self, stage: str) -> dict[str, Tensor]:
        """Give loss and metrics. A rank that could read none of its images takes part with nothing; torchmetrics would
        gather another shape."""
        if self.trainer.world_size > 1 and not all(metric.update_called for metric in self.metrics[stage].values()):
            nothing = torch.empty(0, self.num_classes, device=self.device)
            for metric in self.metrics[stage].values():
                if any(isinstance(state, list) for state in metric.metric_state.values()):
                    metric.update(nothing, self.learns_from.hard_labels(nothing))
        return super().scores(stage)

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        if not isinstance(datamodule.targets, self.learns_from):
            raise ConfigError(
                f"{type(self).__name__} learns from images {self.learns_from.kind}, but this data has images "
                f"{datamodule.targets.kind}; set {TASKS.get(type(datamodule.targets), 'another task=')}"
            )
        if self.class_weights == "balanced":
            counts = torch.as_tensor(datamodule.class_shares())
            if not counts.min():
                name = datamodule.class_names[int(counts.argmin())]
                raise ConfigError(f"task.class_weights=balanced needs images of every class, but '{name}' has none")
            self.class_factors = self.balance_classes(counts, len(datamodule.splits["train"]))

    def forward(self, *inputs: Any) -> Tensor:
        """Compute logits (B, K) from patches (B, N, C·P·P) and their grid, or images (B, C, H, W)."""
        return self.model(*inputs)

    def classify(self, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Compute logits (B, K) as `forward`, and, where classes are `known`, the novelty of each image (B,)."""
        if self.known is None:
            return self(*inputs), None
        logits, features = classify_and_represent(self.model, *inputs)
        self.known = self.known.to(features.device)
        return logits, self.known.compute_novelty(features)

    def training_losses(self, batch: Batch) -> Tensor:
        logits = self(*batch.view.arguments())
        self.count("fit", logits.detach(), batch.target)
        return self.loss(logits, batch.target, **self.weighting())

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        logits, novelty = self.classify(*batch.view.arguments())
        logits = logits.float()
        loss = self.plain_loss(logits, batch.target)
        self.count(stage, logits, batch.target)
        return loss, {"predictions": Predictions(logits, loss, novelty)}
