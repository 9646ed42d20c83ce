"""Losses: pure functions of tensors."""

from vitlab.losses.cross_entropy import softmax_cross_entropy

__all__ = ["softmax_cross_entropy"]
