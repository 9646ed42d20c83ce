"""What the first linear map of a model looks for (Dosovitskiy et al., 2021, arXiv:2010.11929, figure 7 left).

D filters, C channels, P filter height and width
"""

import torch
from torch import Tensor, nn

from vitlab.models import VisionTransformer


def embedding_filters(model: VisionTransformer) -> Tensor:
    """Give the filters of the patch embedding, or of the first convolution of a convolutional stem. -> (D, C, P, P)"""
    first = next(module for module in model.patch_embed.modules() if isinstance(module, nn.Conv2d))
    return first.weight.detach().float().cpu()


def principal_components(filters: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` directions in which filters differ most, and the share of the variance that each holds, falling.

    (D, ...) -> (n, ...), (n,), with n at most D-1 and the size of a filter. The components are orthonormal; the
    largest value of each is positive, as the sign means nothing.
    """
    flat = filters.flatten(1).double()
    _, spread, components = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    n = max(1, min(count, len(flat) - 1, flat.shape[1]))
    components = components[:n]
    largest = components.gather(1, components.abs().argmax(dim=1, keepdim=True))
    shares = spread.square() / spread.square().sum().clamp_min(1e-30)
    return (components * largest.sign()).reshape(n, *filters.shape[1:]).float(), shares[:n].float()
