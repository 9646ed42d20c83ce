"""int8 files: smaller, close to float32, with the layers in float that must be."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from vitlab.compression import quantization
from vitlab.compression.quantization import list_modules, quantize_dynamic, quantize_static
from vitlab.errors import ConfigError

D = 64


@pytest.fixture
def source(tmp_path):
    """An ONNX file of two blocks' MLPs with residuals, a product for novelty, and modules named as torch does."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "pixels"
    for block in range(2):
        weight = f"weight_{block}"
        weights.append(numpy_helper.from_array(random.standard_normal((D, D)).astype("f4") / 8, weight))
        made = helper.make_node("MatMul", [x, weight], [f"y_{block}"], name=f"product_{block}")
        modules = ["", f"model.blocks.{block}", f"model.blocks.{block}.mlp", f"model.blocks.{block}.mlp.fc1", "linear"]
        made.metadata_props.add(key=quantization.SCOPES, value=str(modules))
        nodes += [made, helper.make_node("Add", [x, f"y_{block}"], [f"x_{block}"], name=f"residual_{block}")]
        x = f"x_{block}"
    weights.append(numpy_helper.from_array(np.eye(D, dtype="f4"), "curvature"))
    nodes.append(helper.make_node("MatMul", [x, "curvature"], ["novelty"], name="novelty"))
    shapes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", D]) for n in ("pixels", x, "novelty")]
    graph = helper.make_graph(nodes, "it", shapes[:1], shapes[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def run(path, pixels):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"pixels": pixels})[0]


def integer_weights(path):
    return {
        tensor.name for tensor in onnx.load(path).graph.initializer if tensor.dims == [D, D] and tensor.data_type == 3
    }


def test_dynamic_int8_is_close_and_leaves_the_measure_of_novelty_in_float(source):
    target = source.with_name("int8.onnx")
    quantize_dynamic(source, target)
    pixels = np.random.default_rng(1).standard_normal((3, D)).astype("f4")
    assert np.corrcoef(run(target, pixels).ravel(), run(source, pixels).ravel())[0, 1] > 0.999
    assert integer_weights(target) == {"weight_0_quantized", "weight_1_quantized"}
    scales = {t.name: t.dims for t in onnx.load(target).graph.initializer if t.name.startswith("weight_0_scale")}
    assert list(scales.values()) == [[D]]  # one for each channel


def test_static_int8_leaves_the_last_mlp_and_the_residuals_in_float(source):
    target = source.with_name("int8.onnx")
    quantize_static(source, target, [torch.randn(1, D) for _ in range(16)])
    assert integer_weights(target) == {"weight_0_quantized"}
    quantized = {
        name for node in onnx.load(target).graph.node if node.op_type == "QuantizeLinear" for name in node.input
    }
    assert "x_0" not in quantized
    pixels = np.random.default_rng(1).standard_normal((3, D)).astype("f4")
    assert np.corrcoef(run(target, pixels).ravel(), run(source, pixels).ravel())[0, 1] > 0.999


def test_a_graph_without_mlps_is_refused_in_a_sentence(source):
    model = onnx.load(source)
    for node in model.graph.node:
        del node.metadata_props[:]
    onnx.save(model, source)
    with pytest.raises(ConfigError, match="names none; use dynamic int8"):
        quantize_static(source, source.with_name("int8.onnx"), [])


def test_modules_of_a_node_are_read_as_torch_writes_them():
    entry = SimpleNamespace(key=quantization.SCOPES, value="['', 'model.blocks.0', 'linear_1']")
    assert list_modules(SimpleNamespace(metadata_props=[entry])) == ["", "model.blocks.0", "linear_1"]
    assert list_modules(SimpleNamespace(metadata_props=[])) == []


@pytest.mark.parametrize(
    ("known", "has"), [({"avx2": True, "avx512_vnni": False}, False), ({"avx_vnni": True}, True), ({}, True)]
)
def test_weights_take_seven_bits_only_where_eight_would_overflow(monkeypatch, known, has):
    monkeypatch.setattr(quantization, "cpu_capabilities", lambda: known)
    assert quantization.has_vnni() == has
