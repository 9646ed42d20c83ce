"""Optimization: parameter groups and learning-rate schedules. Nothing here knows a model."""

from vitlab.optim.parameter_groups import parameter_groups
from vitlab.optim.schedules import Schedule, constant, cosine

__all__ = ["Schedule", "constant", "cosine", "parameter_groups"]
