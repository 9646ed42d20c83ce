"""Classify images that may have several classes, or none: each class is a question of its own.

B batch, K classes
"""

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import BinaryF1Score

from vitlab.data.targets import SeveralClasses
from vitlab.tasks.average_precision import MeanAveragePrecision
from vitlab.tasks.supervised import Supervised


class F1OfAnswers(BinaryF1Score):
    """F1 of all answers together, each "yes" from a probability of 0.5 on."""

    def update(self, logits: Tensor, present: Tensor) -> None:
        """Count a batch: (B, K), and whether each class is there (B, K)."""
        super().update(logits.flatten() > 0, present.flatten())


class MultilabelClassification(Supervised):
    """A loss on targets (B, K), 1 where the image has the class, judged by mean average precision, F1 of all answers at
    a probability of 0.5, and loss.

    Balanced class_weights make the images that have a class weigh as much as those that have not. Raises ValueError for
    a loss in which classes compete, as in a softmax.
    """

    learns_from = SeveralClasses

    @staticmethod
    def balanced(counts: Tensor, num_images: int) -> Tensor:
        return (num_images - counts).clamp_min(1) / counts

    def monitors(self) -> list[str]:
        return ["val/loss", "val/map", "val/f1"]

    def new_metrics(self, stage: str) -> MetricCollection:
        metrics: dict[str, Metric] = {"f1": F1OfAnswers(validate_args=False)}
        if stage != "fit":  # it keeps all scores
            metrics["map"] = MeanAveragePrecision(self.num_classes)
        return MetricCollection(metrics, compute_groups=False)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Give the probability of each class by itself. (B, K) -> (B, K)"""
        return logits.float().sigmoid()

    def count(self, stage: str, logits: Tensor, target: Tensor) -> None:
        """Count a batch; a mixed image has the classes that make up at least half of it."""
        self.metrics[stage].update(logits, target >= 0.5)

    def try_loss(self) -> None:
        super().try_loss()
        K = self.num_classes
        if self.plain_loss(torch.full((1, K), 30.0), torch.ones(1, K)) > 1e-3:  # an image of all classes, as is said
            raise ValueError(
                "the classes compete in this loss, and an image may have several of them; set loss=sigmoid_mean or "
                "loss=sigmoid"
            )
