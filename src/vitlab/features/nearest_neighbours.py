"""Weighted k-nearest-neighbour classification: Wu et al., 2018, arXiv:1805.01978, section 3.4; k and temperature as in
DINO (Caron et al., 2021, arXiv:2104.14294).

n known images, m images in question, D features, K classes
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

AT_ONCE = 2**26  # similarities that are held at a time: 256 MiB


def nearest_neighbours(
    known: Tensor,
    target: Tensor,
    features: Tensor,
    *,
    k: Sequence[int],
    num_classes: int,
    temperature: float,
    at_once: int = AT_ONCE,
) -> Tensor:
    """Classify `features` (m, D) by the k most similar of `known` (n, D), whose classes are `target` (n,), for each k.
    -> (len(k), m)

    Similarity is the cosine s; a neighbour votes for its class with the weight exp(s / temperature). Raises ValueError
    for a temperature that is not above 0, for no k, and for a k below 1 or above n.
    """
    n = len(known)
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} is not above 0")
    if not k or min(k) < 1:
        raise ValueError(f"k {list(k)} is not one or more whole numbers of at least 1")
    if max(k) > n:
        raise ValueError(f"k {max(k)} is more neighbours than the {n} images to find them among")
    known = normalize(known.float(), dim=1)
    found = []
    for some in features.split(max(1, at_once // max(n, max(k) + num_classes))):
        similarity, nearest = (normalize(some.float(), dim=1) @ known.T).topk(max(k), dim=1)  # (·, max(k)), best first
        # against the nearest one: the votes' shares are the same, and no temperature overflows
        votes = ((similarity - similarity[:, :1]) / temperature).exp()
        classes = target[nearest]  # (·, max(k))
        totals = votes.new_zeros(len(k), len(some), num_classes)
        for place, count in enumerate(k):
            totals[place].scatter_add_(1, classes[:, :count], votes[:, :count])
        found.append(totals.argmax(dim=2))
    return torch.cat(found, dim=1)
