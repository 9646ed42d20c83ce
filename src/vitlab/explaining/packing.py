"""Store tensors in a page: as whole numbers of 16 bits, in base64.

L layers, T tokens, D embed_dim, H heads, d head width
"""

import base64
from typing import Any

import numpy as np
from torch import Tensor

LARGEST = 32_767
BYTES = 2 * 4 / 3  # of a packed number: two, each three of which are four letters


def pack(tensor: Tensor) -> dict[str, Any]:
    """Round to whole multiples of a step, one for each index of the first dimension: 1/32,767 of the largest magnitude
    there, so that the error is at most half a step. Raises ValueError for what is not finite."""
    if not tensor.isfinite().all():
        raise ValueError("a number of the run is NaN or infinite, which a page cannot show")
    rows = tensor.detach().double().cpu().flatten(1) if tensor.ndim > 1 else tensor.detach().double().cpu()[None]
    steps = (rows.abs().amax(dim=1) / LARGEST).clamp_min(1e-12)
    whole = (rows / steps[:, None]).round().numpy().astype("<i2")
    return {"shape": list(tensor.shape), "steps": steps.tolist(), "data": encode(whole)}


def encode(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def choose_rows(num_prefix_tokens: int, num_tokens: int, row_bytes: float, budget: float) -> list[int]:
    """Choose the tokens of which queries, keys, values and scores are kept: all if they fit into the bytes of the
    budget, else the prefix and evenly spaced patches; [] if not even one patch fits."""
    count = min(num_tokens, int(budget // row_bytes))
    patches = count - num_prefix_tokens
    if patches < 1:
        return []
    spaced = np.linspace(num_prefix_tokens, num_tokens - 1, 2 * patches + 1)[1::2]  # the middles of equal parts
    return [*range(num_prefix_tokens), *sorted({round(place) for place in spaced.tolist()})]
