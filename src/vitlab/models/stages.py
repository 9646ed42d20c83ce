"""The forward pass of a Vision Transformer, stage by stage: each can be had by its name, without hooks.

B batch, C channels, H W image height and width, N patches, P patch_size, T tokens (prefix and patches), D embed_dim,
K num_classes
"""

from collections.abc import Iterator

from torch import Tensor

from vitlab.layers import Grids, mask_padding
from vitlab.models.vit import VisionTransformer


def stages(model: VisionTransformer, x: Tensor, grid: Grids | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield what each stage makes of images (B, C, H, W) or patches (B, N, C·P·P): `stem`, `block_0` and on, and
    `encoded`, each (B, T, D), then `pooled` (B, D) and `logits` (B, K)."""
    x, grid = model.embed(x, grid)
    yield "stem", x
    for number, block in enumerate(model.blocks):
        x = block(x, grid, mask_padding(None, grid, model.num_prefix_tokens))
        yield f"block_{number}", x
    x = model.norm(x)
    yield "encoded", x
    yield "pooled", model.pool_tokens(x, grid)
    yield "logits", model.classify_tokens(x, grid)
