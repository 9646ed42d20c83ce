"""Less memory for more time: blocks are computed again in the backward pass (Chen et al., 2016, arXiv:1604.06174).

Of each block only its input is kept, in place of all that its backward pass needs: for one forward pass more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

LISTS = ("blocks", "decoder_blocks")


def checkpoint_activations(model: nn.Module) -> int:
    """Make every block of `blocks` and `decoder_blocks`, wherever the model has such lists, do so when it learns, in
    place; names and numbers stay what they are. Returns how many blocks.

    Dropout and drop path draw again what they drew. Raises ValueError for a model without blocks, and for one whose
    blocks hold BatchNorm, which would count each batch twice.
    """
    kind = type(model).__name__
    lists = [module for name, module in model.named_modules() if name.split(".")[-1] in LISTS]
    blocks = [block for found in lists if isinstance(found, nn.ModuleList | nn.Sequential) for block in found]
    if not blocks:
        raise ValueError(f"{kind} has no list named {' or '.join(LISTS)} with blocks to recompute; set it to false")
    if any(isinstance(module, _BatchNorm) for block in blocks for module in block.modules()):
        raise ValueError(f"the blocks of {kind} contain BatchNorm, which would see each batch twice; set it to false")
    for block in blocks:
        block.forward = MethodType(recompute, block)  # bound: a deep copy of the block runs the copy
    return len(blocks)


def recompute(block: nn.Module, *inputs: Any, **named: Any) -> Tensor:
    """The block's own forward; where it takes part in a backward pass, with its inputs for all memory."""
    forward = type(block).forward
    tensors = (value for value in (*inputs, *named.values(), *block.parameters()) if isinstance(value, Tensor))
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return forward(block, *inputs, **named)
    return checkpoint(forward, block, *inputs, use_reentrant=False, **named)


@contextmanager
def keep_activations(model: nn.Module) -> Iterator[None]:
    """Within, compute nothing again: for a backward pass in which a layer no longer computes what it did before."""
    kept = {module: module.__dict__.pop("forward") for module in model.modules() if "forward" in module.__dict__}
    try:
        yield
    finally:
        for module, forward in kept.items():
            module.forward = forward
