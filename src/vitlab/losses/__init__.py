"""Losses: pure functions of tensors, one value for each sample."""

from vitlab.losses.contrastive import Pairs, gather_pairs, sigmoid_contrastive, softmax_contrastive
from vitlab.losses.cross_entropy import focal_cross_entropy, sigmoid_cross_entropy, softmax_cross_entropy
from vitlab.losses.distillation import hard_distillation, soft_distillation
from vitlab.losses.evaluation import evaluation_loss, keep_in_evaluation
from vitlab.losses.next_token import next_token_cross_entropy, teacher_forced
from vitlab.losses.reconstruction import denormalize_patches, masked_reconstruction, normalize_patches
from vitlab.losses.self_distillation import self_distillation, teacher_targets

__all__ = [
    "Pairs",
    "denormalize_patches",
    "evaluation_loss",
    "focal_cross_entropy",
    "gather_pairs",
    "hard_distillation",
    "keep_in_evaluation",
    "masked_reconstruction",
    "next_token_cross_entropy",
    "normalize_patches",
    "self_distillation",
    "sigmoid_contrastive",
    "sigmoid_cross_entropy",
    "soft_distillation",
    "softmax_contrastive",
    "softmax_cross_entropy",
    "teacher_forced",
    "teacher_targets",
]
