"""What a model computes with that no tensor shows: two models of the same tensors may still be two functions."""

import math
from collections.abc import Collection
from typing import Any

from torch import nn

from vitlab.errors import CheckpointError
from vitlab.layers import (
    ATTENTION_POSITIONS,
    MLPS,
    NORMS,
    POSITIONS,
    PRODUCTS,
    AttentionPooling,
    ClassTokenPooling,
    ClippedGELU,
    MeanPooling,
    NoPosition,
    QuickGELU,
    SwiGLU,
)
from vitlab.models import MaskedAutoencoder, VisionTransformer
from vitlab.models.vit import POOLS
from vitlab.weights.form import Source

OPTIONS: dict[str, Collection[str]] = {
    "mlp": MLPS,
    "norm": NORMS,
    "position": POSITIONS,
    "attention": PRODUCTS,
    "pool": POOLS,
}
TABLES = {"learned_1d", "sincos_1d", "sincos_2d"}  # positions that are a row for each token, which the tensors show
UNSEEN = ("num_heads", "norm_eps", "mlp")  # of which tensors show nothing
ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    QuickGELU: "quick_gelu",
    ClippedGELU: "gelu_10",
}


def facts(model: VisionTransformer | MaskedAutoencoder) -> dict[str, Any]:
    """By the keys of the model's config."""
    if isinstance(model, MaskedAutoencoder):
        decoder: Any = model.decoder_blocks[0]
        of_encoder = {f"encoder.{key}": value for key, value in facts(model.encoder).items()}
        return of_encoder | {"decoder_heads": decoder.attn.num_heads}
    block: Any = model.blocks[0]
    kinds = (type(model.position), type(block.attn.rel_pos))
    return {
        "num_heads": block.attn.num_heads,
        "norm": "rms_norm" if isinstance(block.norm1, nn.RMSNorm) else "layer_norm",
        "norm_eps": block.norm1.eps,
        "mlp": mlp_name(block.mlp),
        "position": next(
            name for name, kind in POSITIONS.items() if (kind, ATTENTION_POSITIONS.get(name, NoPosition)) == kinds
        ),
        "pre_norm": not isinstance(model.norm_pre, nn.Identity),
        "pool": pooling_name(model),
    }


def unstated(model: VisionTransformer, source: Source) -> dict[str, Any]:
    """What neither the source nor its tensors say, as the model has it."""
    return {key: value for key, value in facts(model).items() if key in UNSEEN and key not in source.facts}


def mlp_name(mlp: Any) -> str:
    if isinstance(mlp, SwiGLU):
        return "swiglu"
    if isinstance(mlp.act, nn.GELU):
        return "gelu_tanh" if mlp.act.approximate == "tanh" else "gelu"
    return ACTIVATIONS[type(mlp.act)]


def pooling_name(model: VisionTransformer) -> str:
    kinds: dict[type[nn.Module], str] = {ClassTokenPooling: "cls", MeanPooling: "mean", AttentionPooling: "map"}
    return kinds[type(model.attn_pool)]


def check(model: VisionTransformer | MaskedAutoencoder, source: Source) -> None:
    """Raise CheckpointError when the source states something else than the model has."""
    own = facts(model)
    for key, value in source.facts.items():
        same = math.isclose(own[key], value, rel_tol=1e-6) if isinstance(value, float) else own[key] == value
        same = same or (key.endswith("position") and {own[key], value} <= TABLES)
        if same:
            continue
        options = OPTIONS.get(key.rpartition(".")[2])
        possible = options is None or value in options
        wanted, given = (str(one).lower() if isinstance(one, bool) else one for one in (value, own[key]))
        remedy = (
            f"set model.{key}={wanted}"
            if possible
            else f"model.{key} is one of {', '.join(options or ())}: take other weights"
        )
        raise CheckpointError(
            f"{source.origin} computes with {key} {wanted}, and the model with {given}; {remedy}, or "
            "model.pretrained_partial=true to go on nevertheless"
        )
