"""Fit the tensors of a source to a model of another image size, patch size, channels, norm or head.

h w grid, N patches (h·w), T tokens (prefix and patches), D embed_dim, K num_classes
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vitlab.layers import (
    ConvolutionalStem,
    Grid,
    Learned1D,
    Learned2D,
    Position,
    RelativePosition,
    offsets,
)
from vitlab.models import Captioner, ImageTextModel, VisionTransformer
from vitlab.weights.facts import pooling_name
from vitlab.weights.form import LoadedWeights
from vitlab.weights.renaming import Tensors
from vitlab.weights.resize import resize_channels, resize_kernel, square

T = TypeVar("T")
TOKENS = ("cls_token", "dist_token", "reg_token")  # in the order in which they stand, and have rows
TEXT_POSITIONS = "embed.position.pos_embed"  # positions of a text's tokens
Rows = list[tuple[str, int]]  # the token that each prefix row is for, and which of its kind


@dataclass
class FittedTensors:
    """Tensors that are to be copied, with a note on each that was changed; those of the model that start anew on
    purpose and those of the source that are left over on purpose, with the reason."""

    tensors: Tensors
    notes: dict[str, str] = field(default_factory=dict)
    anew: dict[str, str] = field(default_factory=dict)
    spare: dict[str, str] = field(default_factory=dict)

    def change(self, name: str, tensor: Tensor, note: str) -> None:
        self.tensors[name] = tensor
        self.notes[name] = "; ".join(filter(None, [self.notes.get(name), note]))


def fit(model: VisionTransformer, source: LoadedWeights) -> FittedTensors:
    """Change what fits only after a change; leave what cannot fit, for the transfer to refuse."""
    fitted = FittedTensors(dict(source.tensors))
    fit_tokens(fitted, model)
    fit_stem(fitted, model, source)
    fit_positions(fitted, model, source)
    fit_relative_positions(fitted, model, source)
    fit_norm(fitted, model, source)
    fit_pool(fitted, model, source)
    fit_biases(fitted, model)
    return fitted


def fit_captioner(model: Captioner, source: LoadedWeights) -> FittedTensors:
    """Fit an encoder that reads for a decoder, whose texts may be shorter than the source's."""
    if isinstance(model.encoder.norm, nn.Identity):  # the last norm is on each token, whatever its place when pooling
        tensors = {re.sub(r"^encoder\.norm\.", "encoder.fc_norm.", key): one for key, one in source.tensors.items()}
        source = replace(source, tensors=tensors)
    fitted = fit_encoder(model.encoder, replace(source, pool=None))
    fit_places(fitted, f"decoder.{TEXT_POSITIONS}", model.decoder.max_length)
    return fitted


def fit_towers(model: ImageTextModel, source: LoadedWeights) -> FittedTensors:
    """Fit the image tower; texts may be shorter than the source's where those after a token change nothing."""
    fitted = fit_encoder(model.encoder, source)
    if model.text.causal:
        fit_places(fitted, f"text.{TEXT_POSITIONS}", model.text.max_length)
    return fitted


def fit_encoder(encoder: VisionTransformer, source: LoadedWeights) -> FittedTensors:
    """Fit what has the prefix "encoder." to an encoder, and leave the rest as it is."""
    prefix = "encoder."
    tensors = {name.removeprefix(prefix): t for name, t in source.tensors.items() if name.startswith(prefix)}
    found = fit(encoder, replace(source, tensors=tensors))
    found.spare |= {name: "head of the source" for name in tensors if name.startswith(("head", "pre_logits."))}
    others = {name: t for name, t in source.tensors.items() if not name.startswith(prefix)}
    return FittedTensors(
        others | prefix_names(prefix, found.tensors),
        prefix_names(prefix, found.notes),
        prefix_names(prefix, found.anew),
        prefix_names(prefix, found.spare),
    )


def fit_places(fitted: FittedTensors, name: str, places: int) -> None:
    """Take the first places of a longer table."""
    table = fitted.tensors.get(name)
    if table is not None and len(table) > places:
        fitted.change(name, table[:places], f"the first {places} of {len(table)} places")


def prefix_names(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    return {prefix + name: value for name, value in named.items()}


def fit_tokens(fitted: FittedTensors, model: VisionTransformer) -> None:
    """Take a distillation token whose head is not used for what it is then: a register, the first of them."""
    tokens = [name for name, _ in list_rows(fitted.tensors) if name != "cls_token"]
    if "dist_token" in tokens and not hasattr(model, "dist_token") and len(tokens) == model.reg_token.shape[1]:
        parts = [fitted.tensors.pop(name) for name in dict.fromkeys(tokens)]
        fitted.change("reg_token", torch.cat(parts, dim=1), "from dist_token")


def fit_stem(fitted: FittedTensors, model: VisionTransformer, source: LoadedWeights) -> None:
    """Fit the channels of the first convolution, and the size of patch kernels."""
    convolutional = isinstance(model.patch_embed, ConvolutionalStem)
    name = "patch_embed.proj.0.weight" if convolutional else "patch_embed.proj.weight"
    kernel, own = fitted.tensors.get(name), model.state_dict()[name]
    if kernel is None or kernel.ndim != 4:
        return
    if kernel.shape[1] != own.shape[1]:
        fitted.change(name, resize_channels(kernel, own.shape[1]), f"{kernel.shape[1]} -> {own.shape[1]} channels")
    old, new = ((t.shape[2], t.shape[3]) for t in (kernel, own))
    if old != new and not convolutional:
        kernel = resize_kernel(fitted.tensors[name], new, source.interpolation)
        fitted.change(name, kernel, f"patches of {format_grid(old)} -> {format_grid(new)} pixels")


def fit_biases(fitted: FittedTensors, model: VisionTransformer) -> None:
    """Give zeros to a linear layer that has no bias in the source, which is the same function."""
    for name, module in model.named_modules():
        weight, bias = f"{name}.weight", f"{name}.bias"
        lacking = weight in fitted.tensors and bias not in fitted.tensors
        if lacking and isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            fitted.change(bias, torch.zeros_like(module.bias, device="cpu"), "0; the source has none")


# -- positions


def fit_positions(fitted: FittedTensors, model: VisionTransformer, source: LoadedWeights) -> None:
    names = [name for name in fitted.tensors if name.split(".")[-1] == "pos_embed"]
    for name in names:
        table = fitted.tensors[name]
        if table.ndim != 3:
            continue
        if isinstance(model.position, Learned1D):
            fit_rows(fitted, name, model, source, fold=names == ["pos_embed"])
        elif isinstance(model.position, Learned2D):
            fit_axes(fitted, name, model.position, source.grid)
        if not model.position.learned and not torch.equal(fitted.tensors[name], model.state_dict().get(name, table)):
            fitted.notes.setdefault(name, "in place of the model's fixed one")


def fit_rows(fitted: FittedTensors, name: str, model: VisionTransformer, source: LoadedWeights, fold: bool) -> None:
    """Fit a table with a row for each patch, after rows for none, the first, or all of the prefix tokens.

    A prefix row that only the model has is 0. One that only the source has is added to its token, which is the same
    function, where this is the only table (`fold`).
    """
    table, position = fitted.tensors[name], model.position
    theirs, ours = list_rows(fitted.tensors), list_rows(model.state_dict())[: position.num_prefix_rows]
    found = layout(table.shape[1], (len(theirs), min(1, len(theirs)), 0), source.grid, position)
    if found is None:
        return
    old, count = found
    theirs = theirs[:count]
    prefix, patches = table[:, :count], table[:, count:]
    if count and not ours and not fold:
        return
    notes = []
    if old != position.grid:
        patches = source.interpolation.table(patches, old, position.grid)
        notes.append(f"grid {format_grid(old)} -> {format_grid(position.grid)}")
    if theirs != ours:
        if not ours:
            for (token, place), row in zip(theirs, prefix[0], strict=True):
                value = fitted.tensors[token].clone()
                value[0, place] += row
                fitted.change(token, value, "with its row of pos_embed")
            notes.append("rows of the prefix went into the tokens")
        else:
            known = dict(zip(theirs, prefix[0], strict=True))
            prefix = torch.stack([known.get(row, table.new_zeros(table.shape[2])) for row in ours])[None]
            notes.append("rows for the model's prefix tokens, 0 where the source has none")
    if notes:
        fitted.change(name, torch.cat([prefix[:, : len(ours)], patches], dim=1), "; ".join(notes))


def list_rows(tensors: Any) -> Rows:
    known = {name: tensors[name] for name in TOKENS if name in tensors}
    return [(name, i) for name, token in known.items() if token.ndim == 3 for i in range(token.shape[1])]


def layout(length: int, counts: tuple[int, ...], grid: Grid | None, position: Position) -> tuple[Grid, int] | None:
    """Find the grid of a table of `length` rows, and how many rows are for prefix tokens (one of `counts`): by the grid
    that the source states, else the model's own, else a square. None if nothing fits."""
    for known in (grid, position.grid):
        for count in counts:
            if known is not None and length - count == known[0] * known[1]:
                return known, count
    return next(((side, count) for count in counts if (side := square(length - count))), None)


def fit_axes(fitted: FittedTensors, name: str, position: Learned2D, grid: Grid | None) -> None:
    """Fit a table of rows and columns; without a stated grid, another length than the model's is taken as a
    square's."""
    table = fitted.tensors[name]
    old = grid or (position.grid if table.shape[1] == sum(position.grid) else (table.shape[1] // 2,) * 2)
    if old == position.grid or table.shape[1] != sum(old):
        return
    theirs = Learned2D(embed_dim=position.embed_dim, grid=old, num_prefix_tokens=0, embed_prefix=False)
    fitted.change(name, theirs.resize(table, position.grid), f"grid {format_grid(old)} -> {format_grid(position.grid)}")


def fit_relative_positions(fitted: FittedTensors, model: VisionTransformer, source: LoadedWeights) -> None:
    for name, module in model.named_modules():
        key = f"{name}.relative_position_bias_table"
        if not isinstance(module, RelativePosition) or key not in fitted.tensors:
            continue
        table = fitted.tensors[key]
        own = offsets(module.grid)
        old = offsets(source.grid) if source.grid else own if len(table) == own[0] * own[1] else square(len(table))
        if old and old != own and len(table) == old[0] * old[1]:
            resized = source.interpolation.table(table[None], old, own)[0]
            fitted.change(key, resized, f"offsets {format_grid(old)} -> {format_grid(own)}")


# -- what comes after the blocks


def fit_norm(fitted: FittedTensors, model: VisionTransformer, source: LoadedWeights) -> None:
    """Fit the last norm, where the source has it before pooling and the model after, or the other way round. With a
    class token that is the same function. With mean pooling it is not: a norm after it starts anew, as in MAE's
    fine-tuning (He et al., 2022, arXiv:2111.06377, appendix A.1)."""
    theirs, ours = (
        [name for name in ("norm", "fc_norm") if f"{name}.weight" in tensors]
        for tensors in (fitted.tensors, model.state_dict())
    )
    if len(theirs) != 1 or theirs == ours:
        return
    parts = [part for part in ("weight", "bias") if f"{theirs[0]}.{part}" in fitted.tensors]
    if model.attn_pool.needs_class_token and (theirs == ["norm"] or source.pool == "cls"):
        for part in parts:
            old = f"{theirs[0]}.{part}"
            fitted.change(f"{ours[0]}.{part}", fitted.tensors.pop(old), f"from {old}")
    elif model.attn_pool.before_norm and theirs == ["norm"]:
        note = "a norm after mean pooling; the source has it before, as model.fc_norm=false does"
        fitted.anew |= {f"fc_norm.{part}": note for part in parts}
        fitted.spare |= {f"norm.{part}": "a norm before pooling; the model has it after the mean" for part in parts}


def fit_pool(fitted: FittedTensors, model: VisionTransformer, source: LoadedWeights) -> None:
    """Leave out attention pooling that the source's own head does not read."""
    if source.pool not in (None, "map") and pooling_name(model) != "map":
        unread = [name for name in fitted.tensors if name.startswith("attn_pool.")]
        fitted.spare |= dict.fromkeys(unread, "the source's head does not read it")


def format_grid(grid: Grid) -> str:
    return f"{grid[0]}x{grid[1]}"
