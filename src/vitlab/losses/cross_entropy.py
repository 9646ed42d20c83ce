"""Cross-entropy between the predicted and the true classes.

B batch, K classes
"""

import torch.nn.functional as F
from torch import Tensor


def softmax_cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-Σₖ qₖ log softmax(logits)ₖ of each sample, in nats. Logits (B, K) and target (B,) or (B, K) -> (B,).

    The target is a class index, or a probability of each class (mixed images have two). Label smoothing
    q = (1 - ε)·target + ε/K is Szegedy et al., 2016, arXiv:1512.00567, section 7.
    """
    return F.cross_entropy(logits.float(), target, reduction="none", label_smoothing=label_smoothing)
