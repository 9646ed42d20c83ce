"""OpenVINO as a way to run a model: its answers, and what it cannot do, in a sentence."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from vitlab.compression.candidates import Skipped, open_openvino


@pytest.fixture
def openvino(monkeypatch):
    """OpenVINO, on a CPU that says it has bfloat16."""
    library = pytest.importorskip("openvino", reason="needs the extra openvino")

    class Core(library.Core):
        def get_property(self, device, name):
            return ["FP32", "BF16"]

    monkeypatch.setattr(library, "Core", Core)


def save(path, node, *weights):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("pixels", "logits")]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("strange", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def test_openvino_answers_as_the_model_does(openvino, tmp_path):
    weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    node = helper.make_node("MatMul", ["pixels", "weight"], ["logits"])
    path = save(tmp_path / "model.onnx", node, onnx.numpy_helper.from_array(weight, "weight"))
    pixels = torch.randn(4, 3)
    found = open_openvino("OpenVINO", path, threads=1)
    assert found.size == path.stat().st_size
    torch.testing.assert_close(found.run(pixels), pixels @ torch.from_numpy(weight), rtol=0.02, atol=0.1)


def test_an_operator_that_openvino_lacks_is_named(openvino, tmp_path):
    path = save(tmp_path / "model.onnx", helper.make_node("Odd", ["pixels"], ["logits"], domain="strange"))
    found = open_openvino("OpenVINO", path, threads=1)
    assert isinstance(found, Skipped)
    assert found.reason.startswith("OpenVINO cannot run it: ")
    assert "strange.Odd" in found.reason
    assert "\n" not in found.reason


def test_a_cpu_without_bfloat16_is_named(monkeypatch, tmp_path):
    library = pytest.importorskip("openvino", reason="needs the extra openvino")
    monkeypatch.setattr(library.Core, "get_property", lambda *_: ["FP32"], raising=False)
    found = open_openvino(
        "OpenVINO", save(tmp_path / "model.onnx", helper.make_node("Relu", ["pixels"], ["logits"])), 1
    )
    assert isinstance(found, Skipped)
    assert "bfloat16" in found.reason
