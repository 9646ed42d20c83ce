"""The parts that a Vision Transformer is built of: what makes tokens, the blocks, what reads them."""

from functools import partial
from typing import Any

from torch import Tensor, nn

from vitlab.layers import (
    ATTENTION_POSITIONS,
    DROP_PATH_SHAPES,
    NORMS,
    POOLS,
    POSITIONS,
    Attention,
    Block,
    ConvolutionalStem,
    Grid,
    LayerScale,
    PatchEmbedding,
    Pooling,
    Position,
    PositionedBlock,
)
from vitlab.models.options import VisionTransformerOptions


def build_stem(options: VisionTransformerOptions) -> PatchEmbedding | ConvolutionalStem:
    """Build what makes tokens of an image: patches, each mapped linearly, or convolutions."""
    sizes: dict[str, Any] = {
        "image_size": options.image_size,
        "in_chans": options.in_chans,
        "embed_dim": options.embed_dim,
    }
    if options.patch_size is not None:
        return PatchEmbedding(patch_size=options.patch_size, **sizes)
    return ConvolutionalStem(channels=options.stem_channels or (), **sizes)


def build_position(options: VisionTransformerOptions, grid: Grid, num_prefix_tokens: int) -> Position:
    """Build the layout of positions that are added to tokens."""
    return POSITIONS[options.position](
        embed_dim=options.embed_dim,
        embed_prefix=options.embed_prefix,
        grid=grid,
        num_prefix_tokens=num_prefix_tokens,
    )


def build_attention(options: VisionTransformerOptions, position: Position) -> Attention:
    """Build the attention of one block, for tokens that lie as `position` says."""
    heads: dict[str, Any] = {"embed_dim": options.embed_dim, "num_heads": options.num_heads}
    kind = ATTENTION_POSITIONS.get(options.position)
    tokens = {"grid": position.grid, "num_prefix_tokens": position.num_prefix_tokens}
    return Attention(
        **heads,
        qkv_bias=options.qkv_bias,
        qk_norm=partial(NORMS[options.norm], eps=options.norm_eps) if options.qk_norm else None,
        product=options.attention,
        position=kind(**heads, **tokens) if kind else None,
        drop_rate=options.drop_rate,
        attn_drop_rate=options.attn_drop_rate,
    )


def build_blocks(options: VisionTransformerOptions, position: Position, pos_embed: Tensor) -> nn.ModuleList:
    """Build the blocks. Where options say so, `position` is added before each but the first, which has it from the
    stem: by a table of its own, or by the shared `pos_embed`."""
    blocks = nn.ModuleList()
    for layer in range(options.depth):
        parts: dict[str, Any] = {
            "attention": build_attention(options, position),
            "mlp": options.build_mlp(),
            "norm": options.build_norm,
            "layer_scale": partial(build_layer_scale, options),
            "drop_path_rate": options.drop_path_rate * DROP_PATH_SHAPES[options.drop_path_shape](layer, options.depth),
        }
        if options.position_place == "stem" or layer == 0:
            blocks.append(Block(**parts))
        else:
            shared = pos_embed if options.position_place == "every_layer_shared" else None
            blocks.append(PositionedBlock(**parts, position=position, pos_embed=shared))
    return blocks


def build_layer_scale(options: VisionTransformerOptions) -> nn.Module:
    return nn.Identity() if options.layer_scale is None else LayerScale(options.embed_dim, options.layer_scale)


def build_pool(options: VisionTransformerOptions, num_prefix_tokens: int) -> tuple[nn.Module, Pooling, nn.Module]:
    """Build the last norm, the pooling, and the norm after it, of which one norm does nothing: `fc_norm` chooses, or
    null what is usual with this pooling."""
    kind = POOLS[options.pool]
    after = kind.before_norm if options.fc_norm is None else options.fc_norm
    pool = partial(
        kind,
        embed_dim=options.embed_dim,
        num_heads=options.num_heads,
        num_prefix_tokens=num_prefix_tokens,
        mlp=options.build_mlp,
        norm=options.build_norm,
    )
    return nn.Identity() if after else options.build_norm(), pool(), options.build_norm() if after else nn.Identity()
