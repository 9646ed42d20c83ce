"""Write the graphs of a finished run, proved by their own runtimes, with what is needed to use them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vitlab.atomic_files import write_json
from vitlab.bundles import layout
from vitlab.bundles.formats import Runner, open_onnx, open_torch_export, write_onnx, write_torch_export
from vitlab.bundles.graph import Graph
from vitlab.bundles.parts import build_scorer, classifier_graph, list_graphs
from vitlab.bundles.preprocessing import Preprocessing, TestImages
from vitlab.bundles.proof import (
    BATCHES,
    FLOAT32,
    MOST_IMAGES,
    Agreement,
    Bounds,
    answer_as_predict,
    check_graph,
    compare_with_predict,
)
from vitlab.data import ImageDataModule
from vitlab.errors import ConfigError
from vitlab.tasks import Task
from vitlab.tasks.supervised import Supervised


@dataclass(frozen=True)
class Form:
    """A kind of file: its suffix, what writes a graph as one, what opens it, and how far it may be from the model."""

    suffix: str
    write: Callable[[Graph, Path, dict[str, str]], None]
    open: Callable[[Path, Graph], Runner]
    bounds: Bounds = FLOAT32


FORMS = {
    "onnx": Form(".onnx", write_onnx, lambda path, graph: open_onnx(path)),
    "torch_export": Form(".pt2", write_torch_export, lambda path, graph: open_torch_export(path, graph.outputs)),
}


@dataclass(frozen=True)
class Bundle:
    """What was written: names of inputs and outputs of each graph; and what was proved: the largest difference of an
    output of each file, and how one that takes stored images answers beside `predict`."""

    graphs: dict[str, dict[str, list[str]]]
    preprocessing: Preprocessing
    differences: dict[str, float]
    agreements: dict[str, Agreement]

    def lines(self) -> list[str]:
        """Say it to a reader, a line each."""
        equal = (
            f"{name} differs from torch by at most {value:.1g}" if value else f"{name} gives exactly what torch gives"
            for name, value in self.differences.items()
        )
        return [*equal, *(f"{name}: {agreement}" for name, agreement in self.agreements.items())]

    def to_json(self) -> dict[str, Any]:
        proved: dict[str, Any] = {name: {"largest_difference": value} for name, value in self.differences.items()}
        proved |= {name: agreement.to_json() for name, agreement in self.agreements.items()}
        return {"graphs": self.graphs, "proved": proved}


def write_graphs(
    folder: Path,
    task: Task,
    datamodule: ImageDataModule,
    names: Sequence[str],
    forms: Sequence[Form],
    model: nn.Module | None = None,
) -> Bundle:
    """Write a task's graphs in `forms`, each proved on test images, beside labels and preprocessing; a `model` may take
    the place of the task's, with which its answers are compared. Raises ConfigError where a file is out of bounds,
    DataError without a test image that can be read."""
    preprocessing = Preprocessing.read_data(datamodule)
    images = TestImages(datamodule, MOST_IMAGES)
    batches = [list_graphs(task, images.stack(count), model or task.model) for count in (2, *BATCHES)]
    metadata = {"labels": json.dumps(names, ensure_ascii=False), "preprocessing": json.dumps(preprocessing.to_json())}
    differences, agreements = {}, {}
    expected = answer_as_predict(build_scorer(task, task.model), images) if isinstance(task, Supervised) else None
    for form in track(forms, description="exporting", transient=True):
        for graph, *others in zip(*batches, strict=True):
            path = folder / f"{graph.name}{form.suffix}"
            form.write(graph, path, metadata)
            inputs = [other.inputs for other in others]
            differences[path.name] = check_graph(graph, inputs, form.open(path, graph), path.name, form.bounds)
        if isinstance(task, Supervised) and expected is not None:
            graph = classifier_graph(build_scorer(task, model or task.model), preprocessing)
            path = folder / f"{graph.name}{form.suffix}"
            form.write(graph, path, metadata)
            run = form.open(path, graph)
            agreements[path.name] = compare_with_predict(run, expected, images, path.name, form.bounds)
    write_json(folder / layout.LABELS, list(names))
    write_json(folder / layout.PREPROCESSING, preprocessing.to_json())
    graphs = {graph.name: {"inputs": list(graph.inputs), "outputs": list(graph.outputs)} for graph in batches[0]}
    return Bundle(graphs, preprocessing, differences, agreements)


def write_weights(folder: Path, model: nn.Module, config: dict[str, Any]) -> None:
    """Write a model's tensors under its own names, and the config that builds it. Raises ConfigError unless they are
    read back as they are."""
    tensors: dict[str, Tensor] = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    save_file(tensors, folder / layout.WEIGHTS, metadata={"format": "pt"})
    back = load_file(folder / layout.WEIGHTS)
    if back.keys() != tensors.keys() or not all(torch.equal(back[name], tensors[name]) for name in tensors):
        raise ConfigError(f"{layout.WEIGHTS} is not read back as it was written; nothing was written")
    write_json(folder / layout.MODEL_CONFIG, config)
