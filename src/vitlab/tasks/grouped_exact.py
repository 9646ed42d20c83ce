"""Measure groups of texts each by itself.

B texts, M tokens, G groups
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


class GroupedExact(Metric):
    """`exact_<name>` of each group: the share of its texts that are right from first to last token; NaN without any."""

    def __init__(self, names: Sequence[str]):
        super().__init__()
        self.names = names
        self.add_state("right", default=torch.zeros(len(names)), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros(len(names)), dist_reduce_fx="sum")

    def update(self, right: Tensor, groups: Tensor) -> None:
        """(B,) bool, (B, G) bool: a text may be of several groups."""
        self.right += (groups & right[:, None]).sum(dim=0)
        self.count += groups.sum(dim=0)

    def compute(self) -> dict[str, Tensor]:
        return {f"exact_{name}": share for name, share in zip(self.names, self.right / self.count, strict=True)}
