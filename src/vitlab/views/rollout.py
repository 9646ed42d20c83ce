"""Attention rollout: what a token has come to hold of every token of the input (Abnar & Zuidema, 2020,
arXiv:2005.00928, section 3).

L layers, T tokens, h heads
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Ã(l) = ½ Ā(l) + ½ I, for the residual, and R(l) = Ã(l) R(l-1), equation 1; Ā is the mean of the heads.

    L times (..., h, T, T) -> (L, ..., T, T): after layer l, row t says how token t is made up of the input's tokens.
    Rows sum to 1 when those of the attention do.
    """
    identity = torch.eye(layers[0].shape[-1])
    result = [identity]
    for weights in layers:
        result.append((weights.mean(dim=-3) + identity) / 2 @ result[-1])
    return torch.stack(result[1:])
