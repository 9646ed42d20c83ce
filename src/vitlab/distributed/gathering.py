"""Gather Python objects from all ranks."""

from typing import Any, TypeVar

import torch

Part = TypeVar("Part")


def gather_from_all_ranks(parts: list[Part]) -> list[Part]:
    """Return the parts of all ranks in one list, in the order of the ranks; every rank calls it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    of_ranks: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(of_ranks, parts)
    return [part for parts_of_rank in of_ranks for part in parts_of_rank]
