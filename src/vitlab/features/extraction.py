"""Extract features of images: what the head of a model sees of them.

n images, B batch, D features, K classes
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitlab.data.batches.batch import Batch
from vitlab.errors import DataError
from vitlab.models import represent


class Features(NamedTuple):
    """The features of n images: `values` (n, D) float32, `target` (n,) classes or (n, K), and `places` (n,) in their
    split."""

    values: Tensor
    target: Tensor
    places: Tensor


@torch.no_grad()
def extract(model: nn.Module, batches: Iterable[Batch]) -> list[Features]:
    """Compute the features of every batch, and bring them to the CPU. The model is in evaluation mode, and the batches
    are on its device."""
    assert not model.training, "dropout would take part"
    return [
        Features(represent(model, *batch.view.arguments()).float().cpu(), batch.target.cpu(), batch.index.cpu())
        for batch in batches
    ]


def join_features(parts: list[Features]) -> Features:
    """Join the features of all batches and all ranks, in the order of the split. Raises DataError when there are
    none."""
    if not parts:
        raise DataError("no image can be read, so there are no features; give readable images")
    values, target, places = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    order = places.argsort()
    return Features(values[order], target[order], places[order])
