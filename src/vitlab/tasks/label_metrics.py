"""Metrics of labels, as `vitlab.monitors.METRICS` declares them: make them, and give each what it reads of a batch.

B batch, K num_classes
"""

from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import BinaryF1Score, MulticlassAccuracy, MulticlassCalibrationError
from torchmetrics.utilities import dim_zero_cat

from vitlab.monitors import METRICS
from vitlab.tasks.calibration import adaptive_calibration_error, negative_log_likelihood


def list_metrics(labels: str, stage: str, num_classes: int) -> list[str]:
    """List the metrics of a stage of a model of K classes; `labels` is "one_class" or "several_classes"."""
    return [
        name
        for name, metric in METRICS.items()
        if getattr(metric, labels) and stage in metric.stages and num_classes >= metric.least_classes
    ]


def build_metrics(labels: str, stage: str, num_classes: int) -> MetricCollection:
    """Build the metrics of a stage, by their names."""
    made = {
        name: make(getattr(METRICS[name], labels), num_classes) for name in list_metrics(labels, stage, num_classes)
    }
    return MetricCollection(made, compute_groups=False)


def make(how: object, num_classes: int) -> Metric:
    if isinstance(how, str):
        module, _, name = how.rpartition(".")
        how = getattr(import_module(module), name)
    assert callable(how)
    metric = how(num_classes)
    assert isinstance(metric, Metric)
    return metric


def ranks(num_classes: int) -> tuple[int, ...]:
    """List the k of the top-k accuracies of so many classes."""
    return (1, 5) if num_classes >= METRICS["acc5"].least_classes else (1,)


def top1(num_classes: int, top_k: int = 1) -> Metric:
    """Measure how often the class is the most probable one."""
    return MulticlassAccuracy(num_classes, top_k=top_k, average="micro", validate_args=False)


def top5(num_classes: int) -> Metric:
    """Measure how often the class is among the five most probable ones."""
    return top1(num_classes, top_k=5)


def calibration_error(num_classes: int) -> Metric:
    """Measure the expected calibration error (Guo et al., 2017, arXiv:1706.04599, equation 3)."""
    return MulticlassCalibrationError(num_classes, n_bins=15, norm="l1", validate_args=False)


class AdaptiveCalibrationError(Metric):
    """The expected calibration error in bins of equal counts (Nixon et al., 2019, arXiv:1904.01685). It keeps the
    confidence of each sample."""

    confidence: list[Tensor]
    right: list[Tensor]

    def __init__(self, num_classes: int):
        super().__init__()
        for state in ("confidence", "right"):
            self.add_state(state, default=[], dist_reduce_fx="cat")

    def update(self, probabilities: Tensor, target: Tensor) -> None:
        """Add samples. (B, K) and (B,)"""
        confidence, predicted = probabilities.max(dim=1)
        self.confidence.append(confidence)
        self.right.append(predicted == target)

    def compute(self) -> Tensor:
        """Compute the error of all samples. -> ()"""
        confidence, right = (dim_zero_cat(kept).cpu().double() for kept in (self.confidence, self.right))
        return torch.tensor(adaptive_calibration_error(confidence, right), device=self.device)


class Brier(MeanMetric):
    """The mean over samples of Σ over classes of (p - y)², where y is 1 for the true class and else 0 (Brier, 1950)."""

    def __init__(self, num_classes: int):
        super().__init__(nan_strategy="disable")

    def update(self, probabilities: Tensor, target: Tensor) -> None:  # no weight
        """Add samples. (B, K) and (B,)"""
        one_hot = F.one_hot(target, probabilities.shape[1])
        super().update((probabilities.float() - one_hot).square().sum(dim=1))


class LogLikelihood(MeanMetric):
    """The negative log-likelihood of the calibrated probabilities, in nats a sample."""

    def __init__(self, num_classes: int):
        super().__init__(nan_strategy="disable")

    def update(self, probabilities: Tensor, target: Tensor) -> None:  # no weight
        """Add samples. (B, K) and (B,)"""
        super().update(negative_log_likelihood(probabilities, target))


def build_answers_f1(num_classes: int) -> Metric:
    """Measure F1 of all K answers to all images together."""
    return BinaryF1Score(validate_args=False)
