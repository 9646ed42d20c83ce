"""What a model computes with that no tensor shows: two models of the same tensors may still be two functions."""

import math
from collections.abc import Collection
from typing import Any

from torch import nn

from vitlab.errors import CheckpointError
from vitlab.layers import MLPS, NORMS, POSITIONS, PRODUCTS, AttentionPooling, ClassTokenPooling, MeanPooling, SwiGLU
from vitlab.models import VisionTransformer
from vitlab.models.vit import ATTENTION_POSITIONS
from vitlab.weights.form import Source

OPTIONS: dict[str, Collection[str]] = {"mlp": MLPS, "norm": NORMS, "position": POSITIONS, "attention": PRODUCTS}


def facts(model: VisionTransformer) -> dict[str, Any]:
    """By the keys of the model's config."""
    block: Any = model.blocks[0]
    positions = {**POSITIONS, **ATTENTION_POSITIONS}
    acting = type(model.position) if POSITIONS["none"] is not type(model.position) else type(block.attn.rel_pos)
    return {
        "num_heads": block.attn.num_heads,
        "norm": "rms_norm" if isinstance(block.norm1, nn.RMSNorm) else "layer_norm",
        "norm_eps": block.norm1.eps,
        "mlp": mlp_name(block.mlp),
        "position": next((name for name, kind in positions.items() if kind is acting), "none"),
    }


def mlp_name(mlp: Any) -> str:
    if isinstance(mlp, SwiGLU):
        return "swiglu"
    if isinstance(mlp.act, nn.ReLU):
        return "relu"
    return "gelu_tanh" if mlp.act.approximate == "tanh" else "gelu"


def pooling_name(model: VisionTransformer) -> str:
    kinds: dict[type[nn.Module], str] = {ClassTokenPooling: "cls", MeanPooling: "mean", AttentionPooling: "map"}
    return kinds[type(model.attn_pool)]


def check(model: VisionTransformer, source: Source) -> None:
    """Raise CheckpointError when the source states something else than the model has."""
    own = facts(model)
    for key, value in source.facts.items():
        same = math.isclose(own[key], value, rel_tol=1e-6) if isinstance(value, float) else own[key] == value
        if same:
            continue
        possible = key not in OPTIONS or value in OPTIONS[key]
        remedy = f"set model.{key}={value}" if possible else f"which is not one of: {', '.join(OPTIONS[key])};"
        raise CheckpointError(
            f"{source.origin} computes with {key} {value}, and the model with {own[key]}; {remedy}, or "
            "model.pretrained_partial=true to go on nevertheless"
        )
