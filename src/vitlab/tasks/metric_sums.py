"""Keep what metrics have summed up across a restart, on however many ranks."""

from torch import Tensor
from torchmetrics import Metric


def sums_of(metric: Metric) -> dict[str, Tensor]:
    """Sum the states of a metric over all ranks; every rank calls it."""
    with metric.sync_context():
        return {name: value.detach().cpu().clone() for name, value in metric.metric_state.items()}


def add_sums(metric: Metric, sums: dict[str, Tensor]) -> None:
    """Add the states of an earlier start to a metric."""
    for name, value in sums.items():
        setattr(metric, name, getattr(metric, name) + value.to(metric.device))
