"""What the head reads of an image: by its class token, its patches on average, or attention pooling.

B batch, C channels, H W image height and width, L layers, h heads, N patches, T tokens (prefix and patches)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.models import VisionTransformer
from vitlab.views.capture import capture_attention, capture_pooling
from vitlab.views.distance import mean_distance
from vitlab.views.rollout import rollout


class ImageAttention(NamedTuple):
    """One look of a model at one image. Weights are in multiples of even attention: 1/T, or 1/N for the pooling, which
    sees patches alone."""

    maps: Tensor  # (L, h, N)
    pooling: Tensor | None  # (h, N), of attention pooling
    rollout: Tensor  # (L, N), in multiples of the patches' mean: early on, a token holds mostly itself
    distances: Tensor  # (L, h), pixels


def look(model: VisionTransformer, image: Tensor) -> ImageAttention | None:
    """Gather all that is to be seen of the model's attention on one image (1, C, H, W); None where layers drop or merge
    tokens, so that a patch has no place in all of them."""
    attention = [weights[0] for weights in capture_attention(model, image)]
    if len({weights.shape[-1] for weights in attention}) > 1:
        return None
    prefix, T = model.num_prefix_tokens, attention[0].shape[-1]
    share = model.attn_pool.share(T, prefix)
    maps = torch.stack([share @ weights for weights in attention])[..., prefix:] * T  # (L, h, N)
    pooling = capture_pooling(model, image)
    if pooling is not None:
        share[prefix:] = pooling[0].mean(dim=0)
        pooling = pooling[0] * (T - prefix)
    rolled = (share @ rollout(attention))[..., prefix:]  # (L, N)
    rolled = rolled / rolled.mean(dim=-1, keepdim=True)
    grid, patch_size = model.patch_embed.grid, model.patch_embed.patch_size
    distances = torch.stack([mean_distance(weights, grid, patch_size) for weights in attention])
    return ImageAttention(maps, pooling, rolled, distances)
