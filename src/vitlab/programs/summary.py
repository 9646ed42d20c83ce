"""Tell what the model of a config costs: tables of its parts, memory, sequence and parameter groups."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.optim import Optimizer

from vitlab.config.build import build
from vitlab.config.found import is_open
from vitlab.config.nodes import merge_node
from vitlab.counting import (
    Cost,
    TrainingMemory,
    costs,
    optimizer_bytes_per_value,
    sequence_cost,
    total,
    training_memory,
)
from vitlab.counting.memory import GIB, format_bytes
from vitlab.errors import ConfigError
from vitlab.invocation import format_command
from vitlab.models import VisionTransformer, parameter_kinds
from vitlab.run.building.model import build_model, recompute_activations
from vitlab.run.hardware.precision import is_bf16

SEQUENCES = ((28, 1), (28, 4), (28, 7), (224, 1), (224, 14), (224, 16), (224, 32))  # pixels, patch size
USUAL_BATCH = 64  # images, for the learning rates of data that says global_batch_size: auto
WIDTH = 120  # columns of a table that goes to a file


def summarize(cfg: DictConfig) -> dict[str, Any]:
    """Print the tables; returns parameters, multiply-accumulates and the largest batch. Opens no file."""
    check_kind(cfg.model)
    for key in ("image_size", "in_chans", "num_classes"):
        if is_open(cfg, key):
            raise ConfigError(f"data.{key} is found in the data, which summary does not open; set data.{key}=...")
    if is_open(cfg, "global_batch_size"):
        cfg = merge_node(cfg, {"global_batch_size": USUAL_BATCH})
    bf16 = is_bf16(cfg.precision)
    with torch.device("meta"):
        model = build_model(cfg.model)
    size = cfg.data.image_size
    shape = (cfg.data.in_chans, size, size)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    name = cfg.model.get("name") or type(model).__name__
    console.print(f"{name}: images of {size}x{size} pixels and {shape[0]} channel(s), {cfg.data.num_classes} classes\n")
    parts = costs(model, shape)
    console.print(parts_table(parts))
    optimization = build(cfg.optimizer, "optimizer")
    try:
        groups = optimization.groups(dict(model.named_parameters()), parameter_kinds(model))
    except ValueError as error:
        raise ConfigError(f"optimizer: {error}") from error
    trained = (shape, bf16, optimization.algorithm)
    memory = training_memory(model, *trained)
    if cfg.activation_checkpointing:
        num_blocks = recompute_activations(model)
        memory = training_memory(model, *trained).recompute_blocks(memory, num_blocks)
    batch = memory.largest_batch(int(cfg.memory_gib * GIB))
    print_memory(console, memory, batch, cfg, optimization.algorithm)
    if isinstance(model, VisionTransformer):
        console.print(sequence_table(model, parts, size))
    if cfg.tensors:
        console.print(tensors_table(model, groups, optimization.scaled_lr))
    return {**total(parts)._asdict(), "largest_batch": batch}


def check_kind(model: DictConfig) -> None:
    """Raise ConfigError for a model that writes texts, whose tokens only its data tells."""
    if "vocab_size" in model or "vocab_size" in (model.get("decoder") or ()):
        name = model["_target_"].split(".")[-1]
        raise ConfigError(
            f"summary needs a model that classifies images, but {name} writes texts; {format_command('check')} with "
            "the same keys as the training prints its parameters, disk and time"
        )


def parts_table(parts: dict[str, Cost]) -> Table:
    table = make_left_title("parameters, and multiply-accumulates for one image")
    table.add_column("part", no_wrap=True)
    for name in ("parameters", "GMACs in weights", "GMACs in QKᵀ and AV", "share"):
        table.add_column(name, justify="right")
    whole = total(parts)
    for part, cost in parts.items():
        share = (cost.weights + cost.attention) / (whole.weights + whole.attention)
        table.add_row(part, f"{cost.parameters:,}", gigas(cost.weights), gigas(cost.attention), f"{share:.1%}")
    table.add_section()
    both = f"{gigas(whole.weights + whole.attention)} GMACs"
    table.add_row("all", f"{whole.parameters:,}", gigas(whole.weights), gigas(whole.attention), both)
    return table


def print_memory(
    console: Console, memory: TrainingMemory, batch: int, cfg: DictConfig, optimizer: partial[Optimizer]
) -> None:
    name = cfg.optimizer.algorithm["_target_"].split(".")[-1]
    kept = optimizer_bytes_per_value(optimizer)
    console.print(f"\nmemory in training, {cfg.precision}, as torch's fused kernels save it")
    console.print(f"  fixed      {format_bytes(memory.fixed)}: weights, gradients, {kept:.0f} bytes a value for {name}")
    console.print(f"  per image  {format_bytes(memory.per_image)} of activations")
    console.print(f"  estimate   a batch of {batch:,} images in {cfg.memory_gib:g} GiB, a tenth of it left free\n")


def sequence_table(model: VisionTransformer, parts: dict[str, Cost], size: int) -> Table:
    """Show why ViT cuts patches: pixels as tokens beside patches as tokens, for the blocks of this model."""
    table = make_left_title("pixels against patches: one image through the blocks of this model")
    table.add_column("image", no_wrap=True)
    table.add_column("patch")
    for name in ("tokens", "scores of a head", "GMACs in weights", "GMACs in QKᵀ and AV", "scores of a layer, MiB"):
        table.add_column(name, justify="right")
    h, w = model.patch_embed.grid
    widths = {
        "num_prefix_tokens": model.num_prefix_tokens,
        "embed_dim": model.cls_token.shape[-1],
        "depth": model.depth,
        "weights_per_token": sum(c.weights for part, c in parts.items() if part.startswith("blocks"))
        // (h * w + model.num_prefix_tokens),
    }
    heads = cast(Any, model.blocks[0]).attn.num_heads
    own = (size, model.patch_embed.patch_size)
    for image, patch in sorted({*SEQUENCES, own}):
        cost = sequence_cost(image, patch, **widths)
        memory = cost.scores * heads * 4 / 2**20  # float32
        row = (f"{cost.tokens:,}", f"{cost.scores:,}", gigas(cost.weights), gigas(cost.attention), f"{memory:,.1f}")
        unit = "pixels" if patch == 1 else f"{patch}x{patch}"
        table.add_row(f"{image}x{image}", unit, *row, style="bold" if (image, patch) == own else None)
    return table


def tensors_table(model: nn.Module, groups: list[dict[str, Any]], lr: float) -> Table:
    """List every tensor with its weight decay and the factor of its learning rate, or that it is frozen; identical
    blocks share a row."""
    table = make_left_title("parameter groups")
    table.add_column("tensor", no_wrap=True)
    for name in ("shape", "parameters", "weight decay", "lr multiplier"):
        table.add_column(name, justify="right", no_wrap=True)
    places = {name: ("frozen", "") for name, _ in model.named_parameters()}
    for group in groups:
        row = (f"{group['weight_decay']:g}", f"{group['lr'] / lr:.4g}")
        places |= dict.fromkeys(group["names"], row)
    for name, count, shape in fold_blocks(model, places):
        words = name.split(".")
        if count > 1:
            words[1] += f"-{int(words[1]) + count - 1}"
        numel = count * torch.Size(shape).numel()
        table.add_row(".".join(words), "x".join(map(str, shape)), f"{numel:,}", *places[name])
    return table


def fold_blocks(model: nn.Module, places: dict[str, Any]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Give the first of each run of blocks whose tensor of that name has the same shape and place, and the run's
    length."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    seen: set[str] = set()
    for name, shape in shapes.items():
        if name in seen:
            continue
        count, following = 1, name_next_block(name)
        while following in shapes and (shapes[following], places[following]) == (shape, places[name]):
            seen.add(following)
            count, following = count + 1, name_next_block(following)
        yield name, count, shape


def name_next_block(name: str) -> str:
    """Name the same tensor in the next block; empty outside the blocks."""
    words = name.split(".")
    return ".".join(["blocks", str(int(words[1]) + 1), *words[2:]]) if words[0] == "blocks" else ""


def gigas(count: int) -> str:
    return f"{count / 1e9:,.3f}"


def make_left_title(title: str) -> Table:
    return Table(title=title, title_justify="left")
