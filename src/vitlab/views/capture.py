"""Capture the attention of every layer while a model looks at images.

B batch, C channels, H W image height and width, P prefix tokens, N patches, T tokens (P+N), h heads
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitlab.layers import Grid
from vitlab.models import VisionTransformer, record_attention


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients, dropout and drop path; afterwards every module is in its former mode."""
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def capture_attention(model: VisionTransformer, images: Tensor, grid: Grid | None = None) -> list[Tensor]:
    """Give how much each token looks at each other one: for each layer (B, h, T, T), on the CPU, in float32; each row
    is a distribution.

    `images` are what the model takes, images (B, C, H, W) or patches, and `grid` is needed where the model needs it.
    """
    with eval_mode(model), record_attention(model.blocks, "cpu") as found:
        model.forward_features(images, grid)  # not model(...), which may be compiled, and pass the hooks by
    return list(found.values())


def capture_pooling(model: VisionTransformer, images: Tensor, grid: Grid | None = None) -> Tensor | None:
    """Capture how much the pooling looks at each patch: (B, h, N), on the CPU, in float32. None for one without
    attention."""
    if not model.attn_pool.chooses:
        return None
    with eval_mode(model):
        return model.attn_pool.looks(model.forward_features(images, grid)).float().cpu()
