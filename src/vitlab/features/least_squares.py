"""Few-shot classification by regularized least squares on frozen features: Dosovitskiy et al., 2021, arXiv:2010.11929,
section 4.1 (metrics); whitening, bias and both closed forms are those of big_vision's evaluators/fewshot_lsr.py.

n images that are known, m in question, D features, K classes, L strengths of the regularization
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.seeding import make_seed

BIAS = 100.0  # the constant feature: so large that its weight is almost free of the regularization
SPREAD = 1e-5  # added to a standard deviation, which may be 0
AT_ONCE = 2**26  # scores, or whitened features, that are held at a time: 256 MiB


def choose_shots(target: Tensor, shots: int, seed: int) -> Tensor:
    """Choose the first `shots` images of each class (all of a class with fewer), in an order that depends on the seed
    alone: their places in `target` (n,). Fewer shots are a part of more."""
    generator = torch.Generator().manual_seed(make_seed("few_shot", seed))
    order = torch.randperm(len(target), generator=generator)
    order = order[target[order].argsort(stable=True)]  # class after class
    _, counts = target[order].unique_consecutive(return_counts=True)
    rank = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)  # 0, 1, ... in each class
    return order[rank < shots]


class Regression(NamedTuple):
    """A solution for each strength: `weights` (L, D+1, K) on features whitened by `mean` and `std`, (D,) each."""

    mean: Tensor
    std: Tensor
    weights: Tensor

    def classes(self, features: Tensor) -> Tensor:
        """Features (m, D) -> the class with the highest score, (L, m)"""
        found = []
        for some in features.split(max(1, AT_ONCE // max(self.weights.shape[1:]))):
            x = whiten(some.float(), self.mean.float(), self.std.float())
            found.append(torch.stack([(x @ weights).argmax(dim=1) for weights in self.weights.float()]))
        return torch.cat(found, dim=1)


def ridge(features: Tensor, target: Tensor, *, num_classes: int, l2: Sequence[float]) -> Regression:
    """The weights that minimise |X·W - Y|² + l2·|W|² for features (n, D), whitened, with a constant column, and targets
    of 1 for the class (n,) and -1 for the others, for each l2.

    One eigendecomposition, of X'X or of the smaller XX', serves all l2. Raises ValueError unless each is above 0.
    """
    if not l2 or min(l2) <= 0:
        raise ValueError(f"l2 {list(l2)} is not one or more numbers above 0")
    features = features.double()  # the smallest eigenvalues would drown in float32
    mean, std = features.mean(dim=0), features.std(dim=0, correction=0) + SPREAD
    x = whiten(features, mean, std)  # (n, D+1)
    y = 2.0 * torch.nn.functional.one_hot(target, num_classes).to(x) - 1.0  # (n, K)
    if len(x) < x.shape[1]:  # W = X'(XX' + l2·I)⁻¹Y
        values, vectors = torch.linalg.eigh(x @ x.T)
        left, right = x.T @ vectors, vectors.T @ y
    else:  # W = (X'X + l2·I)⁻¹X'Y
        values, vectors = torch.linalg.eigh(x.T @ x)
        left, right = vectors, vectors.T @ (x.T @ y)
    values = values.clamp_min(0)  # rounding
    return Regression(mean, std, torch.stack([left / (values + strength) @ right for strength in l2]))


def whiten(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Whiten features with the known images' mean and deviation, and append the constant one. (·, D) -> (·, D+1)"""
    return torch.nn.functional.pad((features - mean) / std, (0, 1), value=BIAS)
