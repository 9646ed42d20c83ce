"""Label images with what another model says of them: features or logits, which a model learns to give.

n images, B batch, D numbers of an output
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitlab.data.targets.targets import Targets


class Outputs(Targets):
    """n outputs (n, D), in memory or mapped from a file; a batch is (B, D) float32."""

    kind = "with another model's output each"

    def collate(self) -> Tensor:
        return torch.tensor(self.values, dtype=torch.float32)

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return f"{self.values.shape[1]} numbers"
