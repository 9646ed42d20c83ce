"""Measure over a whole split how well images and texts find each other, whatever the batches and devices.

n samples, I different images, T different texts, B batch, M tokens of a text, F features
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from vitlab.losses import Pairs

BEST = (1, 5)
RECALLS = tuple(f"{kind}_recall{k}" for kind in ("text", "image") for k in BEST)
BLOCK = 256  # pairs that a loss is measured of at once, in the order of the split
ROWS = 1024  # of similarities that are held at once
STATES = ("image", "text", "codes", "meanings", "images", "places", "right", "logits")


class RetrievalSamples(NamedTuple):
    """Features of images and texts (B, F), the texts' tokens (B, M), what they mean (B,), numbers of the images (B,),
    the samples' places in the split (B,), and whether zero-shot classification is right: 1, 0, or NaN where there is no
    class (B,)."""

    image: Tensor
    text: Tensor
    codes: Tensor
    meanings: Tensor
    images: Tensor
    places: Tensor
    right: Tensor


class Retrieval(Metric):
    """`loss`: the mean of `loss` over blocks of `BLOCK` pairs. `text_recall1`, `text_recall5`: the share of different
    images that have a text of their own meaning among the most similar one or five of all different texts;
    `image_recall1`, `image_recall5`: the share of different texts that have an image of their meaning. A text has each
    meaning that it comes with. `zero_shot`: the share of images that are `right`, among those of which it is a number.
    """

    def __init__(self, loss: Callable[[Pairs, Tensor, Tensor], Tensor], max_length: int, feature_dim: int) -> None:
        super().__init__()
        self.pair_loss, self.max_length, self.feature_dim = loss, max_length, feature_dim
        for name in STATES:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, batch: RetrievalSamples, scale: Tensor, bias: Tensor) -> None:
        logits = torch.stack([scale, bias], dim=1).expand(len(batch.places), -1)
        for name, value in zip(STATES, (*batch, logits), strict=True):
            getattr(self, name).append(value.detach())

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Let a rank that could read none of its samples take part with nothing; torchmetrics would gather another
        shape."""
        if isinstance(self.places, list) and not self.places:
            features = torch.empty(0, self.feature_dim, device=self.device)
            numbers = torch.empty(0, dtype=torch.long, device=self.device)
            codes = numbers.new_empty(0, self.max_length)
            nothing = RetrievalSamples(features, features, codes, numbers, numbers, numbers, features[:, 0])
            self.update(nothing, *features.new_zeros(2, 1))
        super().sync(*args, **kwargs)

    def compute(self) -> dict[str, Tensor]:
        """NaN without any sample."""
        states = (getattr(self, name) for name in STATES)
        image, text, codes, meanings, images, places, right, logits = (
            torch.cat(s) if isinstance(s, list) else s for s in states
        )
        if not len(places):
            nan = torch.tensor(float("nan"))
            return dict.fromkeys(["loss", "zero_shot", *RECALLS], nan)
        order = places.argsort()  # whatever rank had which
        image, text, codes, meanings, images = (value[order] for value in (image, text, codes, meanings, images))
        turns = count_earlier(images).argsort(stable=True)  # a block seldom has two texts of one image
        blocks = zip(image[turns].split(BLOCK), text[turns].split(BLOCK), strict=True)
        losses = torch.cat([self.pair_loss(Pairs(*block), *logits[0]) for block in blocks])
        which, shown, means = (number_values(value) for value in (codes, images, meanings))
        texts, pictures = find_first_places(which), find_first_places(shown)
        T, own = len(texts), means[pictures]
        said = means * T + which  # a number for each meaning and text that come together
        number = torch.arange(T, device=which.device)
        found = {"loss": losses.mean(), "zero_shot": right.nanmean()}
        best = rank_similar(image[pictures], text[texts])  # (I, 5)
        found |= recalls("text", torch.isin(own[:, None] * T + best, said))
        best = rank_similar(text[texts], image[pictures])  # (T, 5)
        return found | recalls("image", torch.isin(own[best] * T + number[:, None], said))


def rank_similar(asked: Tensor, among: Tensor) -> Tensor:
    """Find the places `among` others (m, F) of those most similar to each one asked for (n, F), the most similar
    first. -> (n, 5), or fewer columns"""
    most = min(max(BEST), len(among))
    return torch.cat([(rows @ among.T).topk(most, dim=1).indices for rows in asked.split(ROWS)])


def recalls(name: str, right: Tensor) -> dict[str, Tensor]:
    """The shares of rows (n, 5) with something right among the first ones, by their names."""
    return {f"{name}_recall{k}": right[:, :k].any(dim=1).float().mean() for k in BEST}


def number_values(values: Tensor) -> Tensor:
    """Number different values, or rows of them, from 0 on. (n, ...) -> (n,)"""
    return values.unique(dim=0, return_inverse=True)[1]


def count_earlier(numbers: Tensor) -> Tensor:
    """Count how often each number has come before. (n,) -> (n,)"""
    order = numbers.argsort(stable=True)
    ordered = numbers[order]
    counts = torch.arange(len(numbers), device=numbers.device) - torch.searchsorted(ordered, ordered)
    return torch.empty_like(counts).scatter(0, order, counts)


def find_first_places(numbers: Tensor) -> Tensor:
    """Find the first place of each number from 0 on. (n,) -> (T,)"""
    order = numbers.argsort(stable=True)
    return order[count_earlier(numbers)[order] == 0]
