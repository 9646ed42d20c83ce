"""Collect what a model computes with that no tensor shows: models with the same tensors may still be different
functions."""

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from vitlab.errors import CheckpointError
from vitlab.layers import (
    ATTENTION_POSITIONS,
    MLPS,
    NORMS,
    POOLS,
    POSITIONS,
    PRODUCTS,
    SEQUENCE_POSITIONS,
    SEQUENCE_TURNS,
    NoPosition,
    NoTurn,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
)
from vitlab.models import (
    Captioner,
    Decoder,
    ImageTextModel,
    MaskedAutoencoder,
    SingleStream,
    TextEncoder,
    VisionTransformer,
)
from vitlab.models.image_text_model import TEXT_POOLS
from vitlab.weights.form import Source

OPTIONS: dict[str, Collection[str]] = {
    "mlp": MLPS,
    "norm": NORMS,
    "position": POSITIONS,
    "attention": PRODUCTS,
    "pool": POOLS,
    "decoder.position": SEQUENCE_POSITIONS,
    "text.position": SEQUENCE_POSITIONS,
    "text_pool": TEXT_POOLS,
}
TABLES = {"learned_1d", "sincos_1d", "sincos_2d"}  # positions that are a row for each token, which the tensors show
Known = VisionTransformer | MaskedAutoencoder | Captioner | ImageTextModel | SingleStream
UNSEEN = ("num_heads", "norm_eps", "mlp")  # cannot be seen from the tensors


def facts(model: Known) -> dict[str, Any]:
    """Collect the facts of a model, by the keys of its config."""
    if isinstance(model, Captioner):
        parts = of_parts(encoder=facts(model.encoder), decoder=facts_of_texts(model.decoder))
        return parts | {"question_length": getattr(model, "question_length", 0)}
    if isinstance(model, SingleStream):
        return of_parts(encoder=facts(model.encoder)) | {"question_length": model.question_length}
    if isinstance(model, ImageTextModel):
        pool = next(name for name, kind in TEXT_POOLS.items() if type(model.text_pool) is kind)
        return of_parts(encoder=facts(model.encoder), text=facts_of_texts(model.text)) | {"text_pool": pool}
    if isinstance(model, MaskedAutoencoder):
        decoder: Any = model.decoder_blocks[0]
        of_encoder = {f"encoder.{key}": value for key, value in facts(model.encoder).items()}
        return of_encoder | {"decoder_heads": decoder.attn.num_heads}
    block: Any = model.blocks[0]
    kinds = (type(model.position), type(block.attn.rel_pos))
    return {
        "num_heads": block.attn.num_heads,
        "norm": next(name for name, kind in NORMS.items() if type(block.norm1) is kind),
        "norm_eps": block.norm1.eps,
        "mlp": mlp_name(block.mlp),
        "position": next(
            name for name, kind in POSITIONS.items() if (kind, ATTENTION_POSITIONS.get(name, NoPosition)) == kinds
        ),
        "pre_norm": not isinstance(model.norm_pre, nn.Identity),
        "pool": pooling_name(model),
    }


def of_parts(**parts: dict[str, Any]) -> dict[str, Any]:
    return {f"{part}.{key}": value for part, found in parts.items() for key, value in found.items()}


def facts_of_texts(part: Decoder | TextEncoder) -> dict[str, Any]:
    block: Any = part.blocks[0]
    kinds = (type(part.embed.position), type(block.attn.turn))
    return {
        "num_heads": block.attn.num_heads,
        "norm": next(name for name, kind in NORMS.items() if type(block.norm1) is kind),
        "norm_eps": block.norm1.eps,
        "norm_first": isinstance(block, PreNormDecoderBlock | PreNormEncoderBlock),
        "mlp": mlp_name(block.mlp),
        "position": next(
            name for name, kind in SEQUENCE_POSITIONS.items() if (kind, SEQUENCE_TURNS.get(name, NoTurn)) == kinds
        ),
        "scale_embedding": part.embed.scale != 1,
        "embed_norm": not isinstance(part.embed.norm, nn.Identity),
        "causal": part.causal,
        "scaled_attention": isinstance(block.attn.stretch, nn.Identity),
    }


def unstated(model: VisionTransformer, source: Source) -> dict[str, Any]:
    """List what neither the source nor its tensors state, as the model has it."""
    return {key: value for key, value in facts(model).items() if key in UNSEEN and key not in source.facts}


def mlp_name(mlp: Any) -> str:
    """Find the first of `MLPS` that makes an MLP of the same class and activation."""
    with torch.device("meta"):  # which draws no random numbers
        made = {name: make(embed_dim=1, mlp_dim=1, drop_rate=0.0) for name, make in MLPS.items()}
    return next(name for name, other in made.items() if nonlinearity(other) == nonlinearity(mlp))


def nonlinearity(mlp: Any) -> tuple[type, str]:
    return type(mlp), repr(getattr(mlp, "act", None))


def pooling_name(model: VisionTransformer) -> str:
    return next(name for name, kind in POOLS.items() if type(model.attn_pool) is kind)


def check_facts(model: Known, source: Source) -> None:
    """Raise CheckpointError where the source states something other than the model has."""
    own = facts(model)
    for key, value in source.facts.items():
        same = math.isclose(own[key], value, rel_tol=1e-6) if isinstance(value, float) else own[key] == value
        same = same or (key.endswith("position") and {own[key], value} <= TABLES)
        if same:
            continue
        options = OPTIONS.get(key, OPTIONS.get(key.rpartition(".")[2]))
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
