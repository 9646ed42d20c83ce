"""Metrics of labels, as `vitlab.monitors.METRICS` declares them: make them, and give each what it reads of a batch.

B batch, K num_classes
"""

from importlib import import_module

from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import BinaryF1Score, MulticlassAccuracy, MulticlassCalibrationError

from vitlab.monitors import METRICS


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


def build_answers_f1(num_classes: int) -> Metric:
    """Measure F1 of all K answers to all images together."""
    return BinaryF1Score(validate_args=False)
