"""Choose the graphs that a finished run is exported as, by what its task answers.

B batch, C channels, S image_size, K classes, D features
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitlab.bundles.graph import Graph, ImageClassifier, Scorer
from vitlab.bundles.preprocessing import Preprocessing
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Part:
    """A graph, and how it is given its inputs for a number of test images."""

    graph: Graph
    draw: Callable[[int], Inputs]


def list_parts(task: Task, preprocessing: Preprocessing, pixels: Callable[[int], Tensor]) -> list[Part]:
    """List the graphs of a task; `pixels` gives the first test images, normalised (B, C, S, S)."""
    example = pixels(2)
    assert isinstance(task, Supervised)
    scorer = Scorer(task.model, task.probabilities, task.known)
    model = Graph("model", scorer, {"pixels": example}, scorer.outputs, {"pixels": {0: "batch"}})
    return [Part(model, lambda count: {"pixels": pixels(count)})]


def classifier_graph(scorer: Scorer, preprocessing: Preprocessing) -> Graph:
    """Put the preprocessing before a scorer: images (B, H, W, C) in uint8, of any size."""
    module = ImageClassifier(scorer, preprocessing.resize(), preprocessing.mean, preprocessing.std)
    side = preprocessing.image_size
    example = torch.randint(0, 256, (2, side + 3, side + 5, preprocessing.channels), dtype=torch.uint8)
    axes = {"image": {0: "batch", 1: "height", 2: "width"}}
    return Graph("classifier", module, {"image": example}, scorer.outputs[1:], axes)


def find_scorer(parts: Sequence[Part]) -> Scorer | None:
    """Find the graph that gives probabilities of classes; None for a run without classes."""
    return next((part.graph.module for part in parts if isinstance(part.graph.module, Scorer)), None)
