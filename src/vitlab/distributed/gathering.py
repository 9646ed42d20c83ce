"""Gather on all ranks what each of them holds a part of."""

from typing import Any, TypeVar

import torch

Part = TypeVar("Part")


def gathered(parts: list[Part]) -> list[Part]:
    """Join the parts of all ranks, those of the first rank first; every rank calls it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    of_ranks: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(of_ranks, parts)
    return [part for parts_of_rank in of_ranks for part in parts_of_rank]
