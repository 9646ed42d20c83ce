"""Write int8 copies of ONNX files with ONNX Runtime: products of matrices with weights, one scale for each channel.

Convolutions stay in float32, in which they are faster; so do the products of attention, which have no weights.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from vitlab.errors import ConfigError, format_error
from vitlab.machine import cpu_capabilities

SCOPES = "pkg.torch.onnx.name_scopes"  # where torch writes which modules a node was made by
VNNI = ("avx512_vnni", "avx_vnni")  # names of the instructions that multiply int8 without overflow


def quantize_dynamic(source: Path, target: Path, batches: Iterable[Tensor] = ()) -> None:
    """Quantise weights now, and activations (uint8, one scale for each tensor) when the model runs, whatever the
    `batches`. Raises ConfigError for a graph that cannot be quantised."""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as write

    model = read_graph(source)
    excluded = find_products(model, is_sensitive)
    remove_notes(model)
    with explain_failure(source):
        write(
            model,
            target,
            per_channel=True,
            reduce_range=not has_vnni(),
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul"],  # the head's Gemm becomes one
            nodes_to_exclude=excluded,
        )


def quantize_static(source: Path, target: Path, batches: Iterable[Tensor]) -> None:
    """Quantise weights, and activations by their range on the calibration images in `batches`. The
    last MLP, whose few large activations would lose the most, and residual additions stay in float. Raises ConfigError
    for a graph that cannot be quantised."""
    from onnxruntime.quantization import QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as write

    model = read_graph(source)
    last = find_last_mlp(model)
    excluded = find_products(
        model, lambda node: is_sensitive(node) or last in list_modules(node) or not has_weights(model, node)
    )
    remove_notes(model)
    with explain_failure(source):
        write(
            model,
            target,
            make_reader(batches, model.graph.input[0].name),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=not has_vnni(),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=excluded,
        )


def read_graph(path: Path) -> Any:
    """Read an ONNX file without the shapes of its values, which ONNX Runtime's quantisation contradicts."""
    import onnx

    model = onnx.load(path)
    del model.graph.value_info[:]
    return model


def remove_notes(model: Any) -> None:
    """Remove what torch notes at each node, such as the lines of code that made it: a third of a small model's file."""
    for node in model.graph.node:
        del node.metadata_props[:]


def find_products(model: Any, wanted: Any) -> list[str]:
    """Find the names of the products of matrices that are `wanted`."""
    return [node.name for node in model.graph.node if node.op_type in ("MatMul", "Gemm") and wanted(node)]


def is_sensitive(node: Any) -> bool:
    """Whether a product tells unknown images from known ones, by small differences of features."""
    return not {"curvature", "slopes"}.isdisjoint(node.input)


def has_weights(model: Any, node: Any) -> bool:
    return any(tensor.name == node.input[1] for tensor in model.graph.initializer)


def list_modules(node: Any) -> list[str]:
    """List the modules by which torch made a node, such as model.blocks.0.mlp, from the outermost."""
    found = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    return [str(name) for name in json.loads(found.replace("'", '"'))]


def find_last_mlp(model: Any) -> str:
    """Find the module that is the last block's MLP. Raises ConfigError for a graph without one."""
    modules = [name for node in model.graph.node for name in list_modules(node) if name.endswith(".mlp")]
    if not modules:
        raise ConfigError("static quantisation needs a model with MLPs, but the graph names none; use dynamic int8")
    return modules[-1]


def make_reader(batches: Iterable[Tensor], name: str) -> Any:
    """Make what ONNX Runtime reads calibration images from."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(batches)

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.rest, None)
            return None if batch is None else {name: batch.numpy()}

    return Reader()


def has_vnni() -> bool:
    """Whether this CPU multiplies uint8 by int8 exactly. Without it, sums of two products can overflow, so that
    weights take seven bits. True where torch cannot tell."""
    known = cpu_capabilities()
    return any(known.get(name) for name in VNNI) or not any("avx" in name for name in known)


@contextmanager
def explain_failure(path: Path) -> Iterator[None]:
    """Turn what ONNX Runtime raises into a sentence, and leave out what it logs."""
    logging.disable(logging.WARNING)
    try:
        yield
    except Exception as error:  # it has no class of its own
        raise ConfigError(f"ONNX Runtime cannot quantise {path.name}: {format_error(error)}") from error
    finally:
        logging.disable(logging.NOTSET)
