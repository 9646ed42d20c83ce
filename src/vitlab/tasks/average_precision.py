"""Average precision: how well scores put the samples that have a class before those that do not.

AP = Σ (Rᵢ - Rᵢ₋₁)·Pᵢ over the thresholds that differ, with precision P and recall R at each: no interpolation.
n samples, K classes
"""

import torch
from torch import Tensor
from torchmetrics import Metric


def average_precision(scores: Tensor, target: Tensor) -> Tensor:
    """Average the precision of each class over its recalls. Scores (n, K) of any scale, and target (n, K), whether the
    sample has the class -> (K,), NaN for a class that no sample has. Samples of equal scores come at one threshold."""
    return torch.stack([compute_one_class(scores[:, k], target[:, k]) for k in range(scores.shape[1])])


def compute_one_class(scores: Tensor, target: Tensor) -> Tensor:
    """(n,), (n,) -> ()"""
    scores, order = scores.sort(descending=True)
    ends = torch.ones_like(scores, dtype=torch.bool)
    ends[:-1] = scores[1:] != scores[:-1]
    thresholds = ends.nonzero()[:, 0]  # the last sample at each
    found = target[order].cumsum(dim=0)[thresholds].double()
    gained = found.diff(prepend=found.new_zeros(1))
    return ((found / (thresholds + 1)) * gained).sum() / target.sum()


class MeanAveragePrecision(Metric):
    """The mean of the average precision over the classes that at least one sample has."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("target", default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """(B, K), (B, K) bool"""
        self.scores.append(scores)
        self.target.append(target)

    def compute(self) -> Tensor:
        """NaN without any sample."""
        scores, target = (
            torch.cat(state) if isinstance(state, list) else state for state in (self.scores, self.target)
        )
        return average_precision(scores, target).nanmean().float()
