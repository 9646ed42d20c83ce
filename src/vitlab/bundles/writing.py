"""Write a finished run as a bundle: graphs, weights, labels, preprocessing, calibration, a model card, an index."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor

import vitlab
from vitlab.atomic_files import write_json, write_whole
from vitlab.bundles import layout
from vitlab.bundles.formats import Runner, open_onnx, open_torch_export, write_onnx, write_torch_export
from vitlab.bundles.graph import Graph
from vitlab.bundles.model_card import ModelCard
from vitlab.bundles.parts import classifier_graph, find_scorer, list_graphs
from vitlab.bundles.preprocessing import Preprocessing, TestImages
from vitlab.bundles.proof import BATCHES, MOST_IMAGES, Agreement, check_graph, compare_with_predict
from vitlab.config.nodes import resolve_config
from vitlab.errors import ConfigError
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks import Task

Write = Callable[[Graph, Path, dict[str, str]], None]
FORMS: dict[str, tuple[str, Write, Callable[[Path, Graph], Runner]]] = {  # suffix, what writes it, what runs it
    "onnx": (".onnx", write_onnx, lambda path, graph: open_onnx(path)),
    "torch_export": (".pt2", write_torch_export, lambda path, graph: open_torch_export(path, graph.outputs)),
}


@dataclass(frozen=True)
class Bundle:
    """What was proved of a written bundle: the largest difference of an output of each graph's file, and how the graph
    that takes stored images answers beside `predict`."""

    differences: dict[str, float]
    agreements: dict[str, Agreement]

    def lines(self) -> list[str]:
        """Say it to a reader, a line each."""
        equal = (f"{name} differs from torch by at most {value:.1g}" for name, value in self.differences.items())
        return [*equal, *(f"{name}: {agreement}" for name, agreement in self.agreements.items())]


def write_bundle(saved: SavedRun, folder: Path, *, forms: Sequence[str], whole: bool) -> Bundle:
    """Write the run's graphs in `forms`, each proved by its own runtime on test images, and what is needed to use them;
    `whole`: also weights, model card and index. Raises ConfigError, DataError."""
    datamodule, task = saved.datamodule(), saved.task().eval()
    preprocessing = Preprocessing.of_data(datamodule)
    images = TestImages(datamodule, MOST_IMAGES)
    names = [str(name) for name in saved.checkpoint["run"]["class_names"]]
    batches = [list_graphs(task, images.stack(count)) for count in (2, *BATCHES)]
    graphs = batches[0]
    metadata = {"labels": json.dumps(names, ensure_ascii=False), "preprocessing": json.dumps(preprocessing.to_json())}
    differences, agreements = {}, {}
    for form in track(forms, description="exporting", transient=True):
        suffix, write, open_there = FORMS[form]
        for graph, *others in zip(*batches, strict=True):
            path = folder / f"{graph.name}{suffix}"
            write(graph, path, metadata)
            inputs = [other.inputs for other in others]
            differences[path.name] = check_graph(graph, inputs, open_there(path, graph), path.name)
        if (scorer := find_scorer(graphs)) is not None:
            graph = classifier_graph(scorer, preprocessing)
            path = folder / f"{graph.name}{suffix}"
            write(graph, path, metadata)
            agreements[path.name] = compare_with_predict(open_there(path, graph), scorer, images, path.name)
    write_json(folder / layout.LABELS, names)
    write_json(folder / layout.PREPROCESSING, preprocessing.to_json())
    calibration = {key: saved.calibration.get(key) for key in ("temperature", "false_alarm_rate", "samples")}
    write_json(folder / layout.CALIBRATION, calibration)
    bundle = Bundle(differences, agreements)
    if whole:
        write_weights(saved, task, folder)
        card = ModelCard.of_run(saved, task, names, preprocessing, bundle.lines())
        write_whole(folder / layout.CARD, card.text().encode())
        layout.write_index(folder, describe(saved, task, graphs, bundle))
    return bundle


def describe(saved: SavedRun, task: Task, graphs: Sequence[Graph], bundle: Bundle) -> dict[str, Any]:
    """Describe a bundle in plain values."""
    proved = {name: {"largest_difference": value} for name, value in bundle.differences.items()}
    proved |= {name: agreement.to_json() for name, agreement in bundle.agreements.items()}
    return {
        "vitlab": vitlab.__version__,
        "name": str(saved.config.name),
        "task": type(task).__name__.lower(),
        "step": int(saved.checkpoint.get("global_step", 0)),
        "graphs": {graph.name: {"inputs": list(graph.inputs), "outputs": list(graph.outputs)} for graph in graphs},
        "proved": proved,
    }


def write_weights(saved: SavedRun, task: Task, folder: Path) -> None:
    """Write the model's tensors under its own names, and the config that builds it. Raises ConfigError unless they are
    read back as they are."""
    tensors: dict[str, Tensor] = {name: value.cpu().clone() for name, value in task.model.state_dict().items()}
    save_file(tensors, folder / layout.WEIGHTS, metadata={"format": "pt"})
    back = load_file(folder / layout.WEIGHTS)
    if back.keys() != tensors.keys() or not all(torch.equal(back[name], tensors[name]) for name in tensors):
        raise ConfigError(f"{layout.WEIGHTS} is not read back as it was written; nothing was written")
    write_json(folder / layout.MODEL_CONFIG, resolve_config(saved.config)["model"])
