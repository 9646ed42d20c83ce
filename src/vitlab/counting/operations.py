"""Count the parameters and multiply-accumulates of a model exactly, in total and by part.

C channels, H W image height and width
"""

import re
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab.skeleton import copy_without_values

PART = re.compile(r"^blocks\.\d+\.(\w+)")
PRODUCTS = {"bmm", "baddbmm"}  # QKᵀ and AV: what two activations are multiplied by


class Cost(NamedTuple):
    """What a part costs: its parameters, and its multiply-accumulates for one image, in matrices of weights (`weights`)
    and in products of two activations (`attention`: QKᵀ and AV). Norms, biases, softmax and activations are not
    counted."""

    parameters: int
    weights: int
    attention: int


def multiply_accumulates(model: nn.Module, image_shape: tuple[int, int, int], attention: bool = True) -> int:
    """Count them for one image (C, H, W), with or without the products QKᵀ and AV. B/16 at 224 px: 17.564 or 16.849
    billion."""
    whole = total(costs(model, image_shape))
    return whole.weights + whole.attention * attention


def total(parts: dict[str, Cost]) -> Cost:
    return Cost(*(sum(numbers) for numbers in zip(*parts.values(), strict=True)))


def costs(model: nn.Module, image_shape: tuple[int, int, int]) -> dict[str, Cost]:
    """Count by part, in the order of the modules: a top-level name, or blocks.*.<name> for that part of all blocks
    together."""
    hollow = copy_without_values(model, "meta").eval().requires_grad_(False)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        hollow(torch.empty(1, *image_shape, device="meta"))
    found: dict[str, list[int]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(part_name(name), [0, 0, 0])[0] += parameter.numel()
    root = type(model).__name__
    for module, operations in counter.get_flop_counts().items():
        name = module.removeprefix(f"{root}.")
        if module == root or name == "Global" or not is_part(name):
            continue
        for operation, flops in operations.items():
            kind = 2 if str(operation).split(".")[-1] in PRODUCTS else 1
            found.setdefault(part_name(name), [0, 0, 0])[kind] += flops // 2
    rest = counter.get_total_flops() // 2 - sum(weights + products for _, weights, products in found.values())
    if rest:  # done in a block's own forward, or the model's
        found["in no part"] = [0, rest, 0]
    return {part: Cost(*numbers) for part, numbers in found.items()}


def is_part(module: str) -> bool:
    """Whether a module counts as a part: not one within a part, and neither the list of blocks nor a whole block."""
    if module.startswith("blocks"):
        return len(module.split(".")) == 3
    return "." not in module


def part_name(name: str) -> str:
    """Name the part that a module or parameter belongs to."""
    within = PART.match(name)
    return f"blocks.*.{within.group(1)}" if within else name.split(".")[0]
