"""Write a graph in the form of a runtime, and run it there."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitlab.bundles.graph import Graph
from vitlab.errors import ConfigError

Arrays = dict[str, Tensor]
Runner = Callable[[Arrays], Arrays]
SCOPES = "pkg.torch.onnx.name_scopes"  # the modules that a node is of
NEEDED_BY_ONNX = ("onnx", "onnxscript", "onnxruntime")


def check_libraries() -> None:
    """Raise ConfigError without the libraries that write and run ONNX."""
    if missing := [name for name in NEEDED_BY_ONNX if find_spec(name) is None]:
        raise ConfigError(f"ONNX files need {', '.join(missing)}; pip install 'vitlab[onnx]'")


def write_onnx(graph: Graph, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a graph as an ONNX file, with texts about it. Raises ConfigError for one that ONNX cannot express."""
    try:
        with quiet(), sdpa_kernel(SDPBackend.MATH):  # the strides of fused kernels outlive their decomposition
            program = torch.onnx.export(
                graph.module.eval(),
                tuple(graph.inputs.values()),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=name_axes(graph),
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.model.metadata_props.update(metadata or {})
            for node in program.model.graph:  # torch notes lines of code and their folders at each
                scopes = node.metadata_props.get(SCOPES)
                node.metadata_props.clear()
                if scopes is not None:
                    node.metadata_props[SCOPES] = scopes
            program.save(path)
    except Exception as error:  # torch has a dozen classes for what it cannot export
        raise make_refusal(graph, "ONNX", error) from error


def open_onnx(path: Path, threads: int = 0) -> Runner:
    """Open an ONNX file in ONNX Runtime, on the CPU; threads 0: as many as it chooses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Arrays) -> Arrays:
        found = session.run(names, {name: value.numpy() for name, value in inputs.items()})
        return dict(zip(names, map(torch.from_numpy, found), strict=True))

    return run


def write_torch_export(graph: Graph, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a graph as a program of torch.export, which torch runs without this package. Raises ConfigError for one
    that cannot be expressed."""
    try:
        with quiet():
            axes = tuple(dict.fromkeys(named, Dim.DYNAMIC) for named in name_axes(graph))
            program = torch.export.export(graph.module.eval(), tuple(graph.inputs.values()), dynamic_shapes=axes)
            for node in program.graph.nodes:
                node.meta.pop("stack_trace", None)  # lines of code and their folders
            torch.export.save(program, path, extra_files=metadata)
    except Exception as error:
        raise make_refusal(graph, "torch.export", error) from error


def open_torch_export(path: Path, names: Sequence[str]) -> Runner:
    """Open a program of torch.export; `names` are those of its outputs."""
    module = torch.export.load(path).module()

    def run(inputs: Arrays) -> Arrays:
        with torch.no_grad():
            found = module(*inputs.values())
        return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

    return run


def name_axes(graph: Graph) -> tuple[dict[int, str], ...]:
    """Name the axes that vary, for each input."""
    return tuple(graph.axes.get(key, {}) for key in graph.inputs)


def make_refusal(graph: Graph, form: str, error: BaseException) -> ConfigError:
    """Say in one sentence why a graph cannot be written: what the first of a chain of errors says."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return ConfigError(f"{graph.name} cannot be written as {form}: {reason}")


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what torch logs and warns of while it exports."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
