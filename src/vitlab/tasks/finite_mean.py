"""The mean of what is finite, without asking the device whether it is."""

from torch import Tensor
from torchmetrics import MeanMetric


class FiniteMean(MeanMetric):
    """A mean that leaves out NaN and infinity; NaN if nothing is left. torchmetrics' own waits for the device to find
    them, or, if told not to look for them, ignores weights."""

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")

    def update(self, value: Tensor) -> None:  # type: ignore[override]
        """Add values of any shape; those that are not finite do not count."""
        finite = value.isfinite()
        self.mean_value += value.where(finite, 0.0).sum()
        self.weight += finite.sum()
