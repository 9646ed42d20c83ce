"""Prove that what is exported answers as the run does, by its own runtime, before anybody is given it.

B batch, K classes, p probabilities
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from vitlab.bundles.formats import Runner
from vitlab.bundles.graph import Graph, Scorer
from vitlab.bundles.preprocessing import TestImages
from vitlab.errors import ConfigError

BATCHES = (1, 3, 7)
MOST_IMAGES = 500


@dataclass(frozen=True)
class Bounds:
    """How far a file may be from the model: `difference` of an output, as a share of the largest one or of 1, and
    `flips`, the share of test images whose first class may differ from `predict`'s, from the stored image on.
    `exact`: every output is held to it, and first classes are equal; otherwise only logits are."""

    difference: float
    flips: float
    exact: bool


FLOAT32 = Bounds(difference=1e-4, flips=0.002, exact=True)
INT8 = Bounds(difference=0.25, flips=0.05, exact=False)


def check_graph(
    graph: Graph, batches: Iterable[dict[str, Tensor]], run: Runner, form: str, bounds: Bounds = FLOAT32
) -> float:
    """Compare a graph with torch on batches of inputs; return the largest difference of an output. Raises ConfigError
    where one is out of bounds."""
    largest = 0.0
    for inputs in batches:
        expected, found = graph.compute(inputs), run(inputs)
        for name, value in expected.items():
            if bounds.exact or name == "logits":
                largest = max(largest, compare(form, name, found[name], value, bounds))
    return largest


def compare(form: str, name: str, found: Tensor, expected: Tensor, bounds: Bounds) -> float:
    """Return the largest difference of two outputs. Raises ConfigError where it is out of bounds."""
    if found.shape != expected.shape:
        raise ConfigError(
            f"{form} gives {name} of shape {tuple(found.shape)}, but the model {tuple(expected.shape)}; nothing was "
            "written"
        )
    apart = float((found.double() - expected.double()).abs().max()) if found.numel() else 0.0
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    flipped = bounds.exact and name == "logits" and not torch.equal(found.argmax(dim=-1), expected.argmax(dim=-1))
    if not apart <= bounds.difference * scale or flipped:
        other = "with other first classes" if flipped else f"more than {bounds.difference * scale:.2g}"
        raise ConfigError(
            f"{form} gives {name} that differ from the model's by {apart:.2g}, {other}; nothing was written"
        )
    return apart


@dataclass(frozen=True)
class Agreement:
    """How a graph that takes stored images answers beside `predict`: the number of test images, how many first classes
    differ, and the mean and largest difference of a probability."""

    images: int
    other_classes: int
    mean_difference: float
    largest_difference: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.other_classes} of {self.images} first classes differ from predict's, probabilities by at most "
            f"{self.largest_difference:.2g}"
        )


@torch.no_grad()
def answer_as_predict(scorer: Scorer, images: TestImages) -> Tensor:
    """Compute the probabilities that `predict` gives test images. -> (n, K)"""
    normalize = images.datamodule.preprocessing.normalize
    shown = track(images, description="predicting", total=len(images.places), transient=True)
    return torch.cat([scorer(normalize(image.pixels))[1] for image in shown])


def compare_with_predict(
    run: Runner, expected: Tensor, images: TestImages, form: str, bounds: Bounds = FLOAT32
) -> Agreement:
    """Give a graph test images as they are stored, of any size, and compare it with the probabilities (n, K) that are
    `expected` of them. Raises ConfigError where more first classes differ than may."""
    shown = track(images, description=f"comparing {form} with predict", total=len(images.places), transient=True)
    found = torch.cat([run({"image": image.decoded})["probabilities"] for image in shown])
    differences = (found - expected).abs().amax(dim=1)
    other = int((found.argmax(dim=1) != expected.argmax(dim=1)).sum())
    if other > bounds.flips * len(found):
        raise ConfigError(
            f"{form} gives another first class than predict on {other} of {len(found)} test images, more than "
            f"{bounds.flips:.1%}; nothing was written"
        )
    return Agreement(len(found), other, float(differences.mean()), float(differences.max()))
