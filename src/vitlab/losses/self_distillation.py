"""Self-distillation: a view of an image tells what another view should give (Caron et al., 2021, arXiv:2104.14294).

B batch, T views the teacher sees, V views the student sees, of which the teacher's are the first, K outputs
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def teacher_targets(logits: Tensor, center: Tensor, temperature: float) -> Tensor:
    """Centre and sharpen what the teacher says (section 3.1). (..., K), (K,) -> probabilities (..., K)"""
    return ((logits - center) / temperature).softmax(dim=-1)


def self_distillation(student: Sequence[Tensor], targets: Sequence[Tensor], temperature: float) -> Tensor:
    """The mean cross-entropy of all pairs of a teacher's view and another view of the student's (equation 3; a view is
    paired with itself where it is the only one). V logits (B, K), T probabilities (B, K) -> (B,)"""
    logs = [(logits / temperature).log_softmax(dim=-1) for logits in student]
    pairs = [(t, v) for t in range(len(targets)) for v in range(len(logs)) if v != t] or [(0, 0)]
    return -torch.stack([(targets[t] * logs[v]).sum(dim=-1) for t, v in pairs]).mean(dim=0)
