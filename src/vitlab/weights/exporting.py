"""Share what every export needs: what it is given, and what it cannot express.

T tokens, D embed_dim
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from vitlab.errors import ConfigError
from vitlab.layers import Attention, Block, PatchEmbedding, PositionedBlock, find_exported_options
from vitlab.models import VisionTransformer
from vitlab.weights.facts import facts
from vitlab.weights.renaming import Tensors


@dataclass(frozen=True)
class ExportedPreprocessing:
    """What the images go through: normalisation, and how they come to their size. `resize` is what the shorter side
    is resized to before a crop from the centre, None without a crop; `interpolation` is Pillow's."""

    mean: Sequence[float]
    std: Sequence[float]
    resize: int | None
    interpolation: IntEnum


@dataclass(frozen=True)
class Export:
    """Tensors in a library's names, and its JSON files by their names. `options` are those in which a model of ours
    that computes the same as the exported one differs from the run's; `has_head` is false where that library's model
    ends with features."""

    tensors: Tensors
    files: dict[str, dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)
    has_head: bool = True


def refuse(library: str, impossible: dict[str, bool]) -> None:
    """Raise ConfigError for the first option that the library has no words for."""
    for option, is_so in impossible.items():
        if is_so:
            raise ConfigError(f"{library} has no {option}: this model cannot be exported to it; try the other format")


def require_vit(model: Any) -> VisionTransformer:
    if not isinstance(model, VisionTransformer):
        raise ConfigError(f"export needs a Vision Transformer of vitlab, but the run's model is {type(model).__name__}")
    return model


def collect_common(library: str, model: VisionTransformer, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Collect the model's facts, and the options of its positions in a library's model of a `kind`. Raises ConfigError
    for positions that do not declare that kind, and for what no library has in its ViT."""
    own = facts(model)
    parts = [find_exported_options(part, kind) for part in (model.position, attention(model).rel_pos)]
    blocks = {type(block) for block in model.blocks}
    refuse(
        library,
        {
            "convolutional stem (model.stem_channels)": type(model.patch_embed) is not PatchEmbedding,
            "positions at every layer (model.position_place)": PositionedBlock in blocks,
            f"blocks of kind {', '.join(sorted(block.__name__ for block in blocks))}": blocks != {Block},
            f"{own['position']} positions (model.position)": None in parts,
        },
    )
    return own, {key: value for part in parts if part is not None for key, value in part.items()}


def attention(model: VisionTransformer) -> Attention:
    layer = model.blocks[0].attn
    assert isinstance(layer, Attention)
    return layer


def tensors(model: VisionTransformer) -> Tensors:
    return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}


def positions(model: VisionTransformer) -> Tensor:
    """Give the position table that the tokens get, whatever its kind. -> (1, T, D)"""
    T = model.num_prefix_tokens + model.position.grid[0] * model.position.grid[1]
    table: Tensor = model.position(model.pos_embed, None)
    return table.detach().cpu().expand(1, T, model.cls_token.shape[-1]).contiguous()


def has(layer: Any) -> bool:
    """Whether a layer has parameters."""
    return next(layer.parameters(), None) is not None


def move_patch_bias(state: Tensors, num_prefix_tokens: int) -> Tensors:
    """Move the bias of the patches into their rows of the position table, (1, T, D), for a library whose patches have
    none."""
    prefix, patches = state["pos_embed"].tensor_split([num_prefix_tokens], dim=1)
    table = torch.cat([prefix, patches + state["patch_embed.proj.bias"]], dim=1)
    return {name: value for name, value in state.items() if name != "patch_embed.proj.bias"} | {"pos_embed": table}


def merge_layer_scale(state: Tensors) -> Tensors:
    """Merge layer scales into the linear layers before them: γ · (Wx + b) = (γW)x + γb"""
    scales = {name: value for name, value in state.items() if name.endswith(".gamma")}
    merged = {name: value for name, value in state.items() if name not in scales}
    for name, gamma in scales.items():
        layer = name.replace("ls1.gamma", "attn.proj").replace("ls2.gamma", "mlp.fc2")
        merged[f"{layer}.weight"] = merged[f"{layer}.weight"] * gamma[:, None]
        merged[f"{layer}.bias"] = merged[f"{layer}.bias"] * gamma
    return merged
