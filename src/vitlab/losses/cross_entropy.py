"""Cross-entropy between the predicted and the true classes: of a softmax, of a sigmoid for each class, and focal.

All take logits (B, K) and a target (B,) of class indices, or (B, K) of a probability for each class (mixed images have
two that are not 0; of several labels each is 1), and give the loss of each sample (B,), in nats and in float32. Label
smoothing q = (1 - ε)·target + ε/K is Szegedy et al., 2016, arXiv:1512.00567, section 7. `class_weights` (K,) multiply
the term by which an image is of a class, and the sum is not divided by them: weights that are 1 in the mean keep the
loss at its height.

B batch, K classes, p predicted and q wanted probabilities
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.losses.evaluation import keep_in_evaluation
from vitlab.ranges import Rate, Unsigned


@keep_in_evaluation()
def softmax_cross_entropy(
    logits: Tensor, target: Tensor, *, label_smoothing: Rate = 0.0, class_weights: Tensor | None = None
) -> Tensor:
    """-Σₖ wₖ qₖ log softmax(logits)ₖ. (B, K) and (B,) or (B, K) -> (B,)"""
    check_label_smoothing(label_smoothing)
    target = target.float() if target.ndim == 2 else target
    return F.cross_entropy(
        logits.float(), target, weight=class_weights, reduction="none", label_smoothing=label_smoothing
    )


@keep_in_evaluation("over_classes")
def sigmoid_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    label_smoothing: Rate = 0.0,
    over_classes: str = "sum",
    whole: bool = False,
    class_weights: Tensor | None = None,
) -> Tensor:
    """-Σₖ (wₖ qₖ log σ(logitsₖ) + (1 - qₖ) log σ(-logitsₖ)): each class a question of its own. (B, K) and (B,) or
    (B, K) -> (B,)

    `over_classes` "sum" is Beyer et al., 2020, arXiv:2006.07159, section 5; "mean", the K-th part of it, is what
    Touvron et al., 2022, arXiv:2204.07118 (DeiT III) train with, and `whole`: each class that there is some of in a
    mixed image is wanted wholly (Wightman et al., 2021, arXiv:2110.00476, section 2). Raises ValueError for another
    word.
    """
    if over_classes not in ("sum", "mean"):
        raise ValueError(f"over_classes '{over_classes}' is not one of: sum, mean")
    target = target > 0 if whole and target.ndim == 2 else target
    q = smooth_targets(target, logits.shape[1], label_smoothing)
    loss = F.binary_cross_entropy_with_logits(logits.float(), q, pos_weight=class_weights, reduction="none")  # (B, K)
    return loss.sum(dim=1) if over_classes == "sum" else loss.mean(dim=1)


@keep_in_evaluation()
def focal_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: Unsigned = 0.0,
    label_smoothing: Rate = 0.0,
    class_weights: Tensor | None = None,
) -> Tensor:
    """-Σₖ wₖ qₖ (1 - pₖ)^γ log pₖ with p = softmax(logits): what is learnt already counts less (Lin et al., 2017,
    arXiv:1708.02002, equations 4 and 5, for K classes). (B, K) and (B,) or (B, K) -> (B,)

    At gamma 0 it is the cross-entropy. Raises ValueError for a negative gamma.
    """
    if gamma < 0:
        raise ValueError(f"gamma {gamma} is negative")
    q = smooth_targets(target, logits.shape[1], label_smoothing)
    log_p = logits.float().log_softmax(dim=1)
    wrong = (-log_p.expm1()).clamp_min(torch.finfo(log_p.dtype).tiny)  # 1 - p; a power below 1 has no slope at 0
    loss = -q * wrong**gamma * log_p
    return (loss if class_weights is None else loss * class_weights).sum(dim=1)


def smooth_targets(target: Tensor, num_classes: int, label_smoothing: Rate) -> Tensor:
    """q: a smoothed probability of each class. (B,) or (B, K) -> (B, K)"""
    check_label_smoothing(label_smoothing)
    target = F.one_hot(target, num_classes) if target.ndim == 1 else target
    return (1 - label_smoothing) * target.float() + label_smoothing / num_classes


def check_label_smoothing(label_smoothing: Rate) -> None:
    """Raise ValueError outside of [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing {label_smoothing} is not in [0, 1)")
