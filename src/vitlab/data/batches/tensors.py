"""Copy the tensors of any kind of batch."""

from typing import TypeVar

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

T = TypeVar("T")


def on_device(batch: T, device: torch.device) -> T:
    """Copy a batch to the device; the host does not wait for tensors that are pinned."""
    return apply_to_collection(batch, Tensor, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))
