"""Gather Python objects, and average tensors, over all ranks."""

from typing import Any, TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")


def gather_from_all_ranks(parts: list[Part]) -> list[Part]:
    """Return the parts of all ranks in one list, in the order of the ranks; every rank calls it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    of_ranks: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(of_ranks, parts)
    return [part for parts_of_rank in of_ranks for part in parts_of_rank]


def average_over_ranks(value: Tensor) -> Tensor:
    """Return the mean of a tensor over all ranks, in place; every rank calls it. No barrier precedes it, unlike
    Lightning's `reduce`, where the host waits for the device in every micro-batch."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(value)
        value /= torch.distributed.get_world_size()
    return value
