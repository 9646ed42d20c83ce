"""The parts that a Vision Transformer is built of: what makes tokens, the blocks, what reads them."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from vitlab.layers import Block, ConvolutionalStem, PatchEmbedding, Pooling, Position, PositionedBlock

Make = Callable[[], nn.Module]


def build_stem(
    patch_size: int | None, stem_channels: Sequence[int] | None, **sizes: Any
) -> PatchEmbedding | ConvolutionalStem:
    """Cut the image into patches and map each linearly, or let convolutions do it. Raises ValueError unless one of both
    is chosen."""
    if (patch_size is None) == (stem_channels is None):
        raise ValueError("give either patch_size or stem_channels, and null for the other")
    if patch_size is not None:
        return PatchEmbedding(patch_size=patch_size, **sizes)
    return ConvolutionalStem(channels=stem_channels or (), **sizes)


def build_blocks(
    drop_path_rates: Sequence[float],
    position: Position | None,
    pos_embed: Tensor | None,
    *,
    attention: Make,
    mlp: Make,
    norm: Make,
    layer_scale: Make,
) -> nn.ModuleList:
    """Build a block for each rate. A `position` is added before each but the first, which has it from the stem: by a
    table of their own, or by the shared `pos_embed`."""
    shared = cast(nn.Parameter | None, pos_embed)
    blocks = nn.ModuleList()
    for rate in drop_path_rates:
        parts: dict[str, Any] = {"attention": attention(), "mlp": mlp(), "norm": norm, "layer_scale": layer_scale}
        if position is None or not blocks:
            blocks.append(Block(**parts, drop_path_rate=rate))
        else:
            blocks.append(PositionedBlock(**parts, drop_path_rate=rate, position=position, pos_embed=shared))
    return blocks


def build_pool(
    kind: type[Pooling], fc_norm: bool | None, *, norm: Make, **parts: Any
) -> tuple[nn.Module, Pooling, nn.Module]:
    """Build the last norm, the pooling, and the norm after it, of which one norm does nothing: `fc_norm` chooses, or
    null what is usual with this pooling."""
    after = kind.before_norm if fc_norm is None else fc_norm
    return nn.Identity() if after else norm(), kind(norm=norm, **parts), norm() if after else nn.Identity()
