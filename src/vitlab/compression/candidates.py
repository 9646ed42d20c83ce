"""The ways to run a finished classifier: by torch, or from an ONNX file that is float32 or int8, with merged tokens.

B batch, C channels, H W image height and width, K classes
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from vitlab.bundles.formats import open_onnx, write_onnx
from vitlab.bundles.graph import Graph, Scorer
from vitlab.compression.quantization import quantize_dynamic, quantize_static
from vitlab.compression.token_merging import TokenMerging, explain_unmergeable
from vitlab.errors import ConfigError, format_error
from vitlab.machine import ignore_cached_kernels

Run = Callable[[Tensor], Tensor]  # normalised images (B, C, H, W) -> logits (B, K)
Quantize = Callable[[Path, Path, Iterable[Tensor]], None]  # an ONNX file -> another one, by batches of its input
Wrap = Callable[[nn.Module], Scorer]
BASELINE = "eager float32"


@dataclass(frozen=True)
class Form:
    """What a bundle is made from: a model, whose tokens may be merged, and how its ONNX files are quantised (None: they
    stay float32)."""

    model: nn.Module
    quantize: Quantize | None = None


@dataclass(frozen=True)
class Candidate:
    """A way to run a classifier, and the bytes of its weights. With a `form`, `path` is the ONNX file that it runs."""

    name: str
    run: Run
    size: int
    form: Form | None = None
    path: Path | None = None


@dataclass(frozen=True)
class Skipped:
    """A way that this machine or this model does not have, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Classifier:
    """A model, what `wraps` it for a file, an example of its images (B, C, H, W), and `batches` of training images to
    calibrate static quantisation on."""

    model: nn.Module
    wrap: Wrap
    example: Tensor
    batches: Sequence[Tensor]


def build_candidates(
    own: Classifier, folder: Path, merges: Iterable[int], threads: int, batch_sizes: Sequence[int]
) -> Iterator[Candidate | Skipped]:
    """Build each way in turn, its files in `folder`: without merged tokens all ways, and for each other number in
    `merges` float32 and int8."""
    yield Candidate(BASELINE, own.model, count_bytes(own.model))
    half = copy.deepcopy(own.model).bfloat16()
    yield Candidate("eager bfloat16", lambda pixels: half(pixels.bfloat16()).float(), count_bytes(half))
    yield compile_model(own, batch_sizes)
    for r in sorted({0, *merges}):
        end = f", r={r}" if r else ""
        if r and (reason := explain_unmergeable(own.model)) is not None:
            yield Skipped(f"token merging{end}", reason)
            continue
        model = TokenMerging(own.model, r) if r else own.model
        ways = {"ONNX int8 dynamic": quantize_dynamic} | ({} if r else {"ONNX int8 static": quantize_static})
        plain = write_float32(f"ONNX float32{end}", own, model, folder, threads)
        yield plain
        for name, quantize in ((f"{way}{end}", quantize) for way, quantize in ways.items()):
            if isinstance(plain, Skipped):
                yield Skipped(name, plain.reason)
            else:
                yield write_int8(name, own, plain, quantize, threads)
        if not r:
            yield open_openvino("OpenVINO bfloat16", folder / name_file("ONNX float32"), threads)


def write_float32(name: str, own: Classifier, model: nn.Module, folder: Path, threads: int) -> Candidate | Skipped:
    """Write a model as an ONNX file, pixels (B, C, H, W) -> what the `wrap` of the classifier gives, and open it."""
    path = folder / name_file(name)
    scorer = own.wrap(model)
    graph = Graph("the model", scorer, {"pixels": own.example}, scorer.outputs, {"pixels": {0: "batch"}})
    try:
        write_onnx(graph, path)
        return open_file(name, Form(model), path, threads)
    except ConfigError as error:
        return Skipped(name, str(error))


def write_int8(name: str, own: Classifier, plain: Candidate, quantize: Quantize, threads: int) -> Candidate | Skipped:
    """Quantise the ONNX file of a candidate, and open the new one."""
    assert plain.form is not None
    assert plain.path is not None
    path = plain.path.with_name(name_file(name))
    try:
        quantize(plain.path, path, own.batches)
        return open_file(name, Form(plain.form.model, quantize), path, threads)
    except ConfigError as error:
        return Skipped(name, str(error))


def open_file(name: str, form: Form, path: Path, threads: int) -> Candidate:
    run = open_onnx(path, threads)
    return Candidate(name, lambda pixels: run({"pixels": pixels})["logits"], path.stat().st_size, form, path)


def name_file(name: str) -> str:
    return name.replace(", ", "_").replace(" ", "_").replace("=", "").lower() + ".onnx"


def compile_model(own: Classifier, batch_sizes: Sequence[int]) -> Candidate | Skipped:
    """Compile the model, once for each batch size."""
    name = "compiled float32"
    ignore_cached_kernels()
    model = copy.deepcopy(own.model)
    run = torch.compile(model, dynamic=False)
    try:
        with torch.inference_mode():
            for size in batch_sizes:
                run(own.example[:1].expand(size, -1, -1, -1).clone())
    except Exception as error:  # torch has a dozen classes for a compiler that is missing, or fails
        return Skipped(name, format_error(error).split(". ")[0][:120])
    return Candidate(name, run, count_bytes(model))


def open_openvino(name: str, path: Path, threads: int) -> Candidate | Skipped:
    """Open an ONNX file in OpenVINO, which computes in bfloat16 if this CPU can."""
    if find_spec("openvino") is None:
        return Skipped(name, "openvino is not installed; pip install 'vitlab[openvino]'")
    if not path.is_file():
        return Skipped(name, "there is no ONNX file to open")
    import openvino

    core = openvino.Core()
    if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return Skipped(name, "OpenVINO has no bfloat16 on this CPU, and would compute in float32")
    options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    try:
        request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    except RuntimeError as error:  # an operator that it lacks
        return Skipped(name, f"OpenVINO cannot run it: {str(error).strip().splitlines()[-1].strip(' -')}")

    def run(pixels: Tensor) -> Tensor:
        return torch.from_numpy(request.infer({"pixels": pixels.numpy()})["logits"].copy())

    return Candidate(name, run, path.stat().st_size)


def count_bytes(model: nn.Module) -> int:
    """Count the bytes of a model's weights."""
    return sum(tensor.nbytes for tensor in model.state_dict().values())
