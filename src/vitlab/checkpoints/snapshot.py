"""Copy a state while it stands still, so that training may go on while the copy is written."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


class Snapshot:
    """Memory for copies of a state, which is taken once: pinned for tensors of a GPU, which then come at the speed of
    its bus. The next copy is made in the same place, so the one before must no longer be read."""

    def __init__(self) -> None:
        self.memory: dict[int, Tensor] = {}

    def copy_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Copy a state to the memory of the CPU. Tensors that share their numbers share them in the copy."""
        tensors = [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
        copies: dict[Any, Tensor] = {}
        replaced: dict[int, Any] = {}
        for tensor in tensors:
            place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            if place not in copies:
                copies[place] = self._reserve(len(copies), tensor).copy_(tensor, non_blocking=True)
            replaced[id(tensor)] = copies[place]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return copy.deepcopy(state, replaced)

    def _reserve(self, number: int, tensor: Tensor) -> Tensor:
        kept = self.memory.get(number)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self.memory[number] = kept
        return kept


def count_bytes(state: dict[str, Any]) -> int:
    """Count the bytes of its tensors."""
    return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))
