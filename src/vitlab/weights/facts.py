"""What a model computes with that no tensor shows: two models of the same tensors may still be two functions."""

import math
from collections.abc import Collection
from typing import Any

from torch import nn

from vitlab.errors import CheckpointError
from vitlab.layers import MLPS, NORMS, POSITIONS, PRODUCTS, AttentionPooling, ClassTokenPooling, MeanPooling, SwiGLU
from vitlab.models import MaskedAutoencoder, VisionTransformer
from vitlab.models.vit import ATTENTION_POSITIONS
from vitlab.weights.form import Source

OPTIONS: dict[str, Collection[str]] = {"mlp": MLPS, "norm": NORMS, "position": POSITIONS, "attention": PRODUCTS}
TABLES = {"learned_1d", "sincos_1d", "sincos_2d"}  # positions that are a row for each token, which the tensors show


def facts(model: VisionTransformer | MaskedAutoencoder) -> dict[str, Any]:
    """By the keys of the model's config."""
    if isinstance(model, MaskedAutoencoder):
        decoder: Any = model.decoder_blocks[0]
        of_encoder = {f"encoder.{key}": value for key, value in facts(model.encoder).items()}
        return of_encoder | {"decoder_heads": decoder.attn.num_heads}
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


def check(model: VisionTransformer | MaskedAutoencoder, source: Source) -> None:
    """Raise CheckpointError when the source states something else than the model has."""
    own = facts(model)
    for key, value in source.facts.items():
        same = math.isclose(own[key], value, rel_tol=1e-6) if isinstance(value, float) else own[key] == value
        same = same or (own[key] == "learned_1d" and value in TABLES)
        if same:
            continue
        options = OPTIONS.get(key.rpartition(".")[2])
        possible = options is None or value in options
        remedy = f"set model.{key}={value}" if possible else f"which is not one of: {', '.join(options or ())};"
        raise CheckpointError(
            f"{source.origin} computes with {key} {value}, and the model with {own[key]}; {remedy}, or "
            "model.pretrained_partial=true to go on nevertheless"
        )
