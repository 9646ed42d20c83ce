"""Choose the graphs that a finished run is exported as, by what its task answers.

B batch, C channels, S image_size, K classes, D features
"""

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


def list_graphs(task: Task, pixels: Tensor, model: nn.Module) -> list[Graph]:
    """List the graphs of a task and its model, with normalised images (B, C, S, S) as examples: a graph that scores
    classes, the parts of a model that writes or compares texts, or else the features."""
    if isinstance(task, Supervised):
        scorer = build_scorer(task, model)
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


def build_scorer(task: Supervised, model: nn.Module) -> Scorer:
    """Give a model the task's probabilities and known classes."""
    return Scorer(model, task.probabilities, task.known)
