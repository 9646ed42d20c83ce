"""Rename tensors from one library's names to another's, and join Q, K and V into one tensor or split them.

T tokens, D embed_dim
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from vitlab.errors import CheckpointError

Tensors = dict[str, Tensor]
Rules = Sequence[tuple[str, str]]  # a regular expression, and what takes its place


def rename(tensors: Tensors, rules: Rules) -> Tensors:
    """Apply each rule to each name, in order. Raises CheckpointError when two tensors would have one name."""
    renamed: Tensors = {}
    for old, tensor in tensors.items():
        name = old
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        if name in renamed:
            raise CheckpointError(f"two tensors of the source would both be named {name}, one of them {old}")
        renamed[name] = tensor
    return renamed


def add_batch_dimension(tensors: Tensors) -> Tensors:
    """Add a batch dimension to the class token and the position table. (D,) or (T, D) -> (1, T, D)"""
    tokens = {name: tensors[name] for name in ("cls_token", "pos_embed") if name in tensors}
    return tensors | {name: token.reshape(1, -1, token.shape[-1]) for name, token in tokens.items()}


def stack(tensors: Tensors, layer: str, parts: str) -> Tensors:
    """Join `layer`.q, .k and .v into one `layer`.qkv, for parts "qkv". (D, D) each -> (3·D, D); incomplete ones
    stay."""
    stacked: Tensors = {}
    for name, tensor in tensors.items():
        head, part, kind = ["", "", *name.split(".")][-3:] if "." in name else ("", name, "")
        prefix = name[: -len(f"{part}.{kind}")]
        whole = [f"{prefix}{letter}.{kind}" for letter in parts]
        if head != layer or part not in tuple(parts) or not all(member in tensors for member in whole):
            stacked[name] = tensor
        elif name == whole[0]:
            stacked[f"{prefix}{parts}.{kind}"] = torch.cat([tensors[member] for member in whole])
    return stacked


def unstack(tensors: Tensors, layer: str, parts: str) -> Tensors:
    """Invert `stack`."""
    unstacked: Tensors = {}
    for name, tensor in tensors.items():
        if f"{layer}.{parts}." in name:
            for letter, part in zip(parts, tensor.chunk(len(parts)), strict=True):
                unstacked[name.replace(f"{layer}.{parts}.", f"{layer}.{letter}.")] = part
        else:
            unstacked[name] = tensor
    return unstacked


def add_key_biases(tensors: Tensors) -> Tensors:
    """Add zeros for keys without a bias beside queries that have one, as in BEiT."""
    added = dict(tensors)
    for name, bias in tensors.items():
        key = name.removesuffix("q.bias") + "k.bias"
        if name.endswith(".attn.q.bias") and key not in tensors:
            added[key] = torch.zeros_like(bias)
    return added


def stack_gates(tensors: Tensors) -> Tensors:
    """Join the two matrices of a gated MLP, `mlp.g` and `mlp.x`, into one `mlp.fc1`; an `mlp.x` alone is a plain
    MLP's."""
    return rename(stack(tensors, "mlp", "gx"), [(r"\.mlp\.(gx|x)\.", ".mlp.fc1.")])


def interleave(tensors: Tensors, num_heads: int) -> Tensors:
    """Reorder the rows that give queries and keys within each head: pairs that lie half a head apart come side by side.
    Their products, and so the function, stay."""
    return reorder(tensors, num_heads, (2, -1))


def separate(tensors: Tensors, num_heads: int) -> Tensors:
    """Invert `interleave`."""
    return reorder(tensors, num_heads, (-1, 2))


def reorder(tensors: Tensors, num_heads: int, pairs: tuple[int, int]) -> Tensors:
    """Reorder the rows of each head: lay them out as `pairs`, and read down the columns."""
    reordered = dict(tensors)
    for name, tensor in tensors.items():
        if ".attn.qkv." in name:
            q, k, v = tensor.chunk(3)
            q, k = (part.unflatten(0, (num_heads, *pairs)).transpose(1, 2).flatten(0, 2) for part in (q, k))
            reordered[name] = torch.cat([q, k, v])
        elif ".attn.q_norm." in name or ".attn.k_norm." in name:
            reordered[name] = tensor.unflatten(0, pairs).transpose(0, 1).flatten()
    return reordered
