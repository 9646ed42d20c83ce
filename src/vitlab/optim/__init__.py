"""Optimization: parameter groups and learning-rate schedules. Nothing here knows a model."""

from vitlab.optim.optimization import Optimization
from vitlab.optim.parameter_groups import parameter_groups
from vitlab.optim.schedules import Schedule, constant, cosine, linear, rsqrt, warmup_stable_decay

__all__ = [
    "Optimization",
    "Schedule",
    "constant",
    "cosine",
    "linear",
    "parameter_groups",
    "rsqrt",
    "warmup_stable_decay",
]
