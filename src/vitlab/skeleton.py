"""Copy a model without the values of its parameters, to count or time it."""

import copy

import torch
from torch import nn


def copy_without_values(model: nn.Module, device: str) -> nn.Module:
    """Copy a model with empty parameters and buffers, on the device "meta" or, in FakeTensorMode, "cpu". The values are
    not copied, the model itself is unchanged, and shared parameters stay shared."""
    hollow: dict[int, object] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if isinstance(tensor, nn.Parameter):
            hollow[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        else:
            hollow[id(tensor)] = empty
    return copy.deepcopy(model, hollow)
