"""Make a model without values: its structure and shapes alone, at no cost."""

import copy

import torch
from torch import nn


def skeleton(model: nn.Module, device: str) -> nn.Module:
    """Copy a model without the values of its parameters and buffers: on the device "meta", or, within FakeTensorMode,
    on "cpu". The model itself stays as it is, and is not copied in memory; shared parameters stay shared."""
    hollow: dict[int, object] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if isinstance(tensor, nn.Parameter):
            hollow[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        else:
            hollow[id(tensor)] = empty
    return copy.deepcopy(model, hollow)
