"""Count the memory that training takes: weights, gradients, optimizer, and activations kept for the backward pass.

B batch, C channels, H W image height and width
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from vitlab.layers import Attention, CrossAttention, auto_attention, fused_attention
from vitlab.skeleton import copy_without_values

GIB, MIB = 2**30, 2**20
RESERVE = 0.1  # share of the memory for temporary values, fragmentation and the driver


class TrainingMemory(NamedTuple):
    """Bytes: `fixed` whatever the batch (weights, gradients, optimizer), of which `casts` are weights in bfloat16;
    `per_image` kept for the backward pass."""

    fixed: int
    per_image: int
    casts: int = 0

    def largest_batch(self, memory: int) -> int:
        """Estimate the batch that a device of so many bytes can hold with a tenth left free; 0 if not even the weights
        fit."""
        free = memory * (1 - RESERVE) - self.fixed
        if self.per_image == 0:  # nothing is learned of what takes an image
            return sys.maxsize if free > 0 else 0
        return max(int(free // self.per_image), 0)

    def divide_among(self, devices: int, gathered: int) -> "TrainingMemory":
        """Count one of so many devices among which weights, gradients and optimizer are shared out, while `gathered`
        bytes of weights and gradients are whole."""
        own = -(-(self.fixed - self.casts) // devices)
        return self._replace(fixed=own + self.casts + gathered)

    def recompute_blocks(self, whole: "TrainingMemory", num_blocks: int) -> "TrainingMemory":
        """Count a model that recomputes its blocks one by one: what it keeps, and one block's share of what it would
        keep as a `whole`, while that block is recomputed."""
        return self._replace(per_image=self.per_image + (whole.per_image - self.per_image) // num_blocks)


def training_memory(
    model: nn.Module, image_shape: tuple[int, int, int], bf16: bool, optimizer: Callable[..., Optimizer]
) -> TrainingMemory:
    """Count the memory of training on images (C, H, W) with float32 weights; `bf16`: under autocast to bfloat16."""
    one, two = (activation_bytes(model, (B, *image_shape), bf16) for B in (1, 2))
    values = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    casts = 2 * one - two  # the part that does not grow with the batch: weights in bfloat16
    state = round(trained * (4 + optimizer_bytes_per_value(optimizer)))
    return TrainingMemory(fixed=4 * values + state + casts, per_image=two - one, casts=casts)


def activation_bytes(model: nn.Module, batch_shape: tuple[int, int, int, int], bf16: bool) -> int:
    """Count the bytes that autograd keeps for the backward pass of a batch (B, C, H, W), the weights left out. Runs on
    fake tensors, which have shapes and no values; what fused kernels save is included, and each storage counts once."""
    kept: dict[int, tuple[int, object]] = {}
    with FakeTensorMode():
        hollow = copy_without_values(model, "cpu").train()
        for module in hollow.modules():
            if isinstance(module, Attention | CrossAttention) and module.product is auto_attention:
                module.product = fused_attention
        own = {storage_id(parameter) for parameter in hollow.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage_id(tensor) not in own:
                kept[storage_id(tensor)] = (storage.nbytes(), storage)  # held, or its address would be given out again
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            hollow(torch.empty(batch_shape)).float().sum()
    return sum(size for size, _ in kept.values())


def format_bytes(size: float) -> str:
    """Write bytes in GiB, fewer than one in MiB."""
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.2f} MiB"


def storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def optimizer_bytes_per_value(optimizer: Callable[..., Optimizer]) -> float:
    """Count the bytes of state that an optimizer keeps for each trained value, by one step: 8 for Adam, 4 for
    momentum."""
    parameter = nn.Parameter(torch.ones(32, 32))
    parameter.grad = torch.ones_like(parameter)
    instance = optimizer([parameter], lr=1e-3)
    instance.step()
    state = [value for value in instance.state[parameter].values() if isinstance(value, Tensor) and value.ndim]
    return sum(value.numel() * value.element_size() for value in state) / parameter.numel()
