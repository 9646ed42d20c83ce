"""Compare tensors bit for bit, wherever they lie in nested states."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path


def list_tensors(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a nested state by their dotted names."""
    leaves, _ = tree_flatten_with_path(state)
    return {name_place(place): leaf for place, leaf in leaves if isinstance(leaf, Tensor)}


def name_place(place: Any) -> str:
    return keystr(place).replace("['", ".").replace("']", "").replace("[", ".").replace("]", "").lstrip(".")


def find_differences(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that are not in both, or not the same bits in both."""
    names = first | second
    return [name for name in names if name not in first or name not in second or not is_same(first[name], second[name])]


def is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))
