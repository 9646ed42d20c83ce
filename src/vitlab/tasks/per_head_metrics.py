"""Several classifiers scored on the same samples.

B batch, L classifiers, K classes
"""

import torch
from torch import Tensor
from torchmetrics import Metric


class PerHeadMetrics(Metric):
    """Top-1, top-k and loss of L classifiers on the same samples: `acc1`, `acc5` and `loss`, (L,) each."""

    def __init__(self, num_heads: int, top_k: int):
        super().__init__()
        self.top_k = top_k
        for name in ("top1", "top5", "total"):
            self.add_state(name, default=torch.zeros(num_heads), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros(()), dist_reduce_fx="sum")

    def update(self, logits: Tensor, losses: Tensor, target: Tensor) -> None:
        """(B, L, K), (B, L), (B,)"""
        hits = logits.topk(self.top_k, dim=2).indices == target[:, None, None]  # (B, L, top_k)
        self.top1 += hits[..., 0].sum(dim=0)
        self.top5 += hits.any(dim=2).sum(dim=0)
        self.total += losses.sum(dim=0)
        self.count += len(target)

    def compute(self) -> dict[str, Tensor]:
        return {"loss": self.total / self.count, "acc1": self.top1 / self.count, "acc5": self.top5 / self.count}
