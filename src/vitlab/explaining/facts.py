"""Count and name what a model is made of."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from vitlab.layers import compute_grid
from vitlab.models import Captioner, DistilledVisionTransformer, VisionTransformer

TOKEN_NAMES = {"cls_token": "class token", "dist_token": "distillation token", "reg_token": "register"}


def list_facts(model: VisionTransformer, size: Sequence[int], writer: Captioner | None = None) -> dict[str, int]:
    """Count what the model is made of, for images of such a (height, width), and a decoder that writes of them;
    `linear` are the weights that each token is multiplied with in the blocks."""
    (height, width), (h, w) = compute_grid(size, model.patch_embed.patch_size)
    block: Any = model.blocks[0]
    proj: Any = model.patch_embed.proj
    heads, dim = block.attn.num_heads, proj.out_channels
    layers = [layer for layer in model.blocks.modules() if isinstance(layer, nn.Linear)]
    return {
        "height": height,
        "width": width,
        "channels": proj.in_channels,
        "patch_size": model.patch_embed.patch_size,
        "patches": h * w,
        "patch_numbers": proj.weight[0].numel(),
        "dim": dim,
        "layers": len(model.blocks),
        "heads": heads,
        "head_dim": dim // heads,
        "prefix": model.num_prefix_tokens,
        "tokens": model.num_prefix_tokens + h * w,
        "classes": getattr(model.head, "out_features", 0),  # an encoder has no head
        "linear": sum(layer.weight.numel() for layer in layers),
        "parameters": sum(parameter.numel() for parameter in (writer or model).parameters()),
        **({} if writer is None else {"decoder_layers": writer.decoder.depth, "vocabulary": writer.vocab_size}),
    }


def write_facts(facts: dict[str, int]) -> dict[str, str]:
    """Write each number of the model in HTML."""
    return {
        name: f'<data class="n" data-of="fact/{name}" value="{value}">{value:,}</data>' for name, value in facts.items()
    }


def name_prefix(model: VisionTransformer) -> list[str]:
    """Name the tokens before the patches."""
    counts = {TOKEN_NAMES[name]: getattr(model, name).shape[1] for name in model.prefixes}
    return [
        name if count == 1 else f"{name} {number}" for name, count in counts.items() for number in range(1, count + 1)
    ]


def name_read(model: VisionTransformer) -> str:
    """Name what the head reads."""
    if isinstance(model, DistilledVisionTransformer):
        return "the class token and the distillation token, each with its own head, and takes the mean"
    return model.attn_pool.reads
