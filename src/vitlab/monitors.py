"""What each metric says of itself, read by tasks, monitors, tables, reports and sweeps, by its name and without torch.

K num_classes
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Make = str | Callable[[int], Any]  # makes a metric of torchmetrics for K classes: a function, or its dotted name


@dataclass(frozen=True)
class Metric:
    """A metric as it is logged, judged by and printed; `val/acc1` is the metric `acc1`.

    `better` says which direction is better, `unit` how the value is printed, and `leads` whether tables with room for
    one metric show it. A metric of labels also says what it `reads` of a model beside the target: "logits" (B, K),
    "probabilities" (B, K), or "predictions": the class (B,), or whether each class is there (B, K). It says in which
    `stages` ("fit", "val", "test") it is computed, from how many classes on, and what makes it where an image has
    `one_class`, or `several_classes`. In "fit" a metric may keep sums alone, which a resumed run continues.
    """

    better: Literal["min", "max"] = "max"
    unit: Literal["percent", "none"] = "none"
    leads: bool = False
    reads: Literal["logits", "probabilities", "predictions"] = "probabilities"
    stages: tuple[str, ...] = ("val", "test")
    least_classes: int = 1
    one_class: Make | None = None
    several_classes: Make | None = None


METRICS: dict[str, Metric] = {
    "loss": Metric(better="min"),
    "acc1": Metric(
        unit="percent",
        leads=True,
        reads="logits",
        stages=("fit", "val", "test"),
        one_class="vitlab.tasks.label_metrics.top1",
    ),
    "acc5": Metric(
        unit="percent",
        reads="logits",
        stages=("fit", "val", "test"),
        least_classes=6,  # of five, the true one is always among five
        one_class="vitlab.tasks.label_metrics.top5",
    ),
    "ece": Metric(
        better="min",
        unit="percent",
        stages=("test",),
        one_class="vitlab.tasks.label_metrics.calibration_error",
    ),
    "adaptive_ece": Metric(
        better="min",
        unit="percent",
        stages=("test",),
        one_class="vitlab.tasks.label_metrics.AdaptiveCalibrationError",
    ),
    "brier": Metric(better="min", stages=("test",), one_class="vitlab.tasks.label_metrics.Brier"),
    "nll": Metric(better="min", stages=("test",), one_class="vitlab.tasks.label_metrics.LogLikelihood"),
    "map": Metric(
        unit="percent",
        leads=True,
        reads="logits",
        several_classes="vitlab.tasks.average_precision.MeanAveragePrecision",  # it keeps all scores
    ),
    "f1": Metric(
        unit="percent",
        reads="predictions",
        stages=("fit", "val", "test"),
        several_classes="vitlab.tasks.label_metrics.build_answers_f1",
    ),
    "precision": Metric(unit="percent"),  # of each class, as recall
    "recall": Metric(unit="percent"),
    "exact": Metric(unit="percent"),  # of texts
    "cer": Metric(better="min", unit="percent"),
}


def find_metric(name: str) -> Metric:
    """Return the declaration of a logged value. One of a part, as val/acc1_lr_0.1, val/5shot_acc1 or val/exact_sums, is
    in the unit of the metric in its name; a value that no metric declares is a number, the larger the better."""
    base = name.rsplit("/", 1)[-1]
    return next((METRICS[part] for part in (base, *base.split("_")) if part in METRICS), Metric())


def better(monitor: str) -> str:
    """Return which direction of a metric is better, "min" or "max"."""
    return find_metric(monitor).better


def format_metric(name: str, value: float) -> str:
    """Return a value as a person reads it: 12.34% or 0.1234."""
    return f"{value:.2%}" if find_metric(name).unit == "percent" else f"{value:.4f}"
