"""Classify images, supervised: one class an image.

B batch, K classes
"""

from pathlib import Path
from typing import Any

from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from vitlab.data.targets import OneClass
from vitlab.errors import DataError
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.training_data import TrainingData


class Classification(Supervised):
    """A loss on (mixed) classes, judged by top-1, top-5 of more than five classes, loss, and, at test, calibration
    error."""

    learns_from = OneClass

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        if len(datamodule.class_names) == 1:
            raise DataError(one_class(datamodule.class_names[0], Path(datamodule.splits["train"].name(0))))

    def monitors(self) -> list[str]:
        return ["val/loss", *(f"val/acc{k}" for k in ranks(self.num_classes))]

    def new_metrics(self, stage: str) -> MetricCollection:
        metrics: dict[str, Any] = {f"acc{k}": self.accuracy(k) for k in ranks(self.num_classes)}
        if stage == "test":
            metrics["ece"] = CalibrationError(self.num_classes, n_bins=15, norm="l1", validate_args=False)
        return MetricCollection(metrics, compute_groups=False)

    def accuracy(self, top_k: int) -> MulticlassAccuracy:
        return MulticlassAccuracy(self.num_classes, top_k=top_k, average="micro", validate_args=False)

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, K) -> (B, K), whatever the loss. Of logits that a sigmoid was trained on, one for each class by itself,
        the softmax is the probability of the class given that the image has exactly one: Πⱼ of σ(zₖ) and 1 - σ(zⱼ) is
        proportional to exp(zₖ)."""
        return logits.float().softmax(dim=1)

    def count(self, stage: str, logits: Tensor, target: Tensor) -> None:
        self.metrics[stage].update(logits, class_of(target))


class CalibrationError(MulticlassCalibrationError):
    """Expected calibration error (Guo et al., 2017, arXiv:1706.04599, equation 3). torchmetrics' own mistakes logits
    that happen to lie in [0, 1] for probabilities."""

    def update(self, logits: Tensor, target: Tensor) -> None:
        """(B, K), (B,)"""
        super().update(logits.float().softmax(dim=1), target)


def ranks(num_classes: int) -> tuple[int, ...]:
    """The k of top-k accuracies that tell something of so many classes: of five, the true one is always among five."""
    return (1, 5) if num_classes > 5 else (1,)


def one_class(name: str, image: Path) -> str:
    """Refuse data in which every image has the class `name`, among them this `image`."""
    told = f"the data has one class, '{name}', and it takes two to tell classes apart"
    folder = next((parent for parent in image.parent.parents if parent.name == name), None)
    return f"{told}; are the classes in it? Set data.source.root={folder}" if folder else told


def class_of(target: Tensor) -> Tensor:
    """Give the class; for a mixed image that of the larger part. (B,) or (B, K) -> (B,)"""
    return target if target.ndim == 1 else target.argmax(dim=1)
