"""The tensors of a batch, whatever kind it is of."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def with_tensors(value: T, change: Callable[[Tensor], Tensor]) -> T:
    """The same tuples and named tuples, every tensor in them changed."""
    found: Any = value
    if isinstance(value, Tensor):
        found = change(value)
    elif isinstance(value, tuple):
        parts = [with_tensors(part, change) for part in value]
        found = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return found


def on_device(batch: T, device: torch.device) -> T:
    """Copy a batch to the device; the host does not wait for tensors that are pinned."""
    return with_tensors(batch, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))
