"""Several classifiers scored on the same samples.

B batch, L classifiers, K classes
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


class PerHeadMetrics(Metric):
    """Loss and top-k accuracies, for each k of `ranks`, of L classifiers on the same samples: `loss`, `acc1` and so on,
    (L,) each."""

    def __init__(self, num_heads: int, ranks: Sequence[int]):
        super().__init__()
        self.ranks = ranks
        self.add_state("hits", default=torch.zeros(len(ranks), num_heads), dist_reduce_fx="sum")
        self.add_state("total", default=torch.zeros(num_heads), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros(()), dist_reduce_fx="sum")

    def update(self, logits: Tensor, losses: Tensor, target: Tensor) -> None:
        """(B, L, K), (B, L), (B,)"""
        right = logits.topk(max(self.ranks), dim=2).indices == target[:, None, None]  # (B, L, k)
        self.hits += torch.stack([right[..., :k].any(dim=2).sum(dim=0) for k in self.ranks])
        self.total += losses.sum(dim=0)
        self.count += len(target)

    def compute(self) -> dict[str, Tensor]:
        accuracies = {f"acc{k}": hits / self.count for k, hits in zip(self.ranks, self.hits, strict=True)}
        return {"loss": self.total / self.count, **accuracies}
