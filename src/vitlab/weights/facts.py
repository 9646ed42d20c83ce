"""Collect what a model computes with that no tensor shows: models with the same tensors may still be different
functions."""

import math
from collections.abc import Collection, Mapping
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
    SEQUENCE_ROTARIES,
    NoPosition,
    NoRotary,
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
from vitlab.weights.form import LoadedWeights

OPTIONS: dict[str, Collection[str]] = {
    "mlp": MLPS,
    "norm": NORMS,
    "position": POSITIONS,
    "attention": PRODUCTS,
    "pool": POOLS,
    "decoder.position": SEQUENCE_POSITIONS,
    "text.position": SEQUENCE_POSITIONS,
    "text_pool": TEXT_POOLS,
    "model_args": (),
}
# positions that add a row to each token, which the tensors show, and do nothing else
TABLES = {name for name, kind in POSITIONS.items() if kind.has_rows and name not in ATTENTION_POSITIONS}
Known = VisionTransformer | MaskedAutoencoder | Captioner | ImageTextModel | SingleStream
UNSEEN = ("num_heads", "norm_eps", "mlp", "position")  # cannot be seen from the tensors


def facts(model: nn.Module) -> dict[str, Any]:
    """Collect the facts of a model, by the keys of its config; of a model of timm, its name, since model=timm has no
    keys for more."""
    if not isinstance(model, Known):
        config: Any = getattr(model, "pretrained_cfg", None)
        return {"name": config["architecture"], "model_args": {}} if config else {}
    if isinstance(model, Captioner):
        parts = collect_part_facts(encoder=facts(model.encoder), decoder=collect_text_facts(model.decoder))
        return parts | {"question_length": getattr(model, "question_length", 0)}
    if isinstance(model, SingleStream):
        return collect_part_facts(encoder=facts(model.encoder)) | {"question_length": model.question_length}
    if isinstance(model, ImageTextModel):
        pool = next(name for name, kind in TEXT_POOLS.items() if type(model.text_pool) is kind)
        return collect_part_facts(encoder=facts(model.encoder), text=collect_text_facts(model.text)) | {
            "text_pool": pool
        }
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


def collect_part_facts(**parts: dict[str, Any]) -> dict[str, Any]:
    return {f"{part}.{key}": value for part, found in parts.items() for key, value in found.items()}


def collect_text_facts(part: Decoder | TextEncoder) -> dict[str, Any]:
    block: Any = part.blocks[0]
    kinds = (type(part.embed.position), type(block.attn.turn))
    return {
        "num_heads": block.attn.num_heads,
        "norm": next(name for name, kind in NORMS.items() if type(block.norm1) is kind),
        "norm_eps": block.norm1.eps,
        "norm_first": isinstance(block, PreNormDecoderBlock | PreNormEncoderBlock),
        "mlp": mlp_name(block.mlp),
        "position": next(
            name for name, kind in SEQUENCE_POSITIONS.items() if (kind, SEQUENCE_ROTARIES.get(name, NoRotary)) == kinds
        ),
        "scale_embedding": part.embed.scale != 1,
        "embed_norm": not isinstance(part.embed.norm, nn.Identity),
        "causal": part.causal,
        "scaled_attention": isinstance(block.attn.cancel_scaling, nn.Identity),
    }


def list_unstated(model: VisionTransformer, source: LoadedWeights, head: bool) -> dict[str, Any]:
    """List what neither the source nor its tensors state, as the model has it; with the `head`, also what it reads."""
    unseen = {*UNSEEN, "pool"} if head and source.pool is None else set(UNSEEN)
    return {key: value for key, value in facts(model).items() if key in unseen - source.facts.keys()}


def mlp_name(mlp: Any) -> str:
    """Find the first of `MLPS` that makes an MLP of the same class and activation."""
    with torch.device("meta"):  # which draws no random numbers
        made = {name: make(embed_dim=1, mlp_dim=1, drop_rate=0.0) for name, make in MLPS.items()}
    return next(name for name, other in made.items() if nonlinearity(other) == nonlinearity(mlp))


def nonlinearity(mlp: Any) -> tuple[type, str]:
    return type(mlp), repr(getattr(mlp, "act", None))


def pooling_name(model: VisionTransformer) -> str:
    return next(name for name, kind in POOLS.items() if type(model.attn_pool) is kind)


def find_differing_facts(model: nn.Module, source: LoadedWeights) -> dict[str, tuple[Any, Any]]:
    """Find what the source states otherwise than the model has it: its value and the model's, by key."""
    own = facts(model)
    pairs = {key: (value, own[key]) for key, value in source.facts.items() if key in own}
    return {key: pair for key, pair in pairs.items() if not is_same(key, *pair)}


def is_same(key: str, value: Any, own: Any) -> bool:
    if key.endswith("position") and {value, own} <= TABLES:
        return True
    return math.isclose(own, value, rel_tol=1e-6) if isinstance(value, float) else bool(own == value)


def check_facts(source: LoadedWeights, differing: dict[str, tuple[Any, Any]]) -> None:
    """Raise CheckpointError for what the source states otherwise than the model has it."""
    if not differing:
        return
    stated = " and ".join(f"{key} {format_fact(value)}" for key, (value, _) in differing.items())
    own = " and ".join(format_fact(value) for _, value in differing.values())
    remedy = f"set {settings({key: value for key, (value, _) in differing.items()})}"
    for key, (value, _) in differing.items():
        options = OPTIONS.get(key, OPTIONS.get(key.rpartition(".")[2]))
        if options is not None and value not in options:
            known = f"model.{key} is one of {', '.join(options)}: " if options else ""
            remedy = f"{known}take other weights"
    raise CheckpointError(
        f"{source.origin} computes with {stated}, but the model with {own}; {remedy}, or set "
        "model.pretrained_partial=true to load it nevertheless"
    )


def settings(values: Mapping[str, Any]) -> str:
    """Write values of the model's keys as they are typed."""
    return " ".join(f"model.{key}={format_fact(value)}" for key, value in values.items())


def format_fact(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
