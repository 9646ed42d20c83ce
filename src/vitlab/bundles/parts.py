"""Choose the graphs that a finished run is exported as, by what its task answers.

B batch, C channels, S image_size, K classes, D features
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitlab.bundles.graph import Graph, ImageClassifier, Scorer
from vitlab.bundles.preprocessing import Preprocessing
from vitlab.bundles.text_graphs import reader_graphs, stream_graphs, tower_graphs
from vitlab.models import EncoderDecoder, ImageTextModel, SingleStream
from vitlab.models.representation import represent
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised


class Features(nn.Module):
    """Normalised images (B, C, S, S) -> the features that a head would read (B, D)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return represent(self.model, pixels)


def list_graphs(task: Task, pixels: Tensor) -> list[Graph]:
    """List the graphs of a task, with normalised images (B, C, S, S) as examples: of those with classes the graph that
    scores them, of those that write or compare texts their halves, of others the features."""
    model = task.model
    if isinstance(task, Supervised):
        scorer = Scorer(model, task.probabilities, task.known)
        return [Graph("model", scorer, {"pixels": pixels}, scorer.outputs, {"pixels": {0: "batch"}})]
    if isinstance(model, EncoderDecoder):
        return reader_graphs(model, pixels)
    if isinstance(model, SingleStream):
        return stream_graphs(model, pixels)
    if isinstance(model, ImageTextModel):
        return tower_graphs(model, pixels)
    return [Graph("model", Features(model), {"pixels": pixels}, ["features"], {"pixels": {0: "batch"}})]


def classifier_graph(scorer: Scorer, preprocessing: Preprocessing) -> Graph:
    """Put the preprocessing before a scorer: images (B, H, W, C) in uint8, of any size."""
    module = ImageClassifier(scorer, preprocessing.resize(), preprocessing.mean, preprocessing.std)
    side = preprocessing.image_size
    example = torch.randint(0, 256, (2, side + 3, side + 5, preprocessing.channels), dtype=torch.uint8)
    axes = {"image": {0: "batch", 1: "height", 2: "width"}}
    return Graph("classifier", module, {"image": example}, scorer.outputs[1:], axes)


def find_scorer(graphs: Sequence[Graph]) -> Scorer | None:
    """Find the graph that gives probabilities of classes; None for a run without classes."""
    return next((graph.module for graph in graphs if isinstance(graph.module, Scorer)), None)
