"""A bundle of the smallest model, as vitlab export format=bundle writes it."""

import hashlib
import json
from types import SimpleNamespace

import pytest
import torch
from conftest import vit_options

from vitlab.bundles.formats import write_onnx
from vitlab.bundles.graph import Graph, Scorer
from vitlab.models import VisionTransformer
from vitlab.tasks.known_classes import KnownClasses

LABELS = ["cat", "dog", "a bird, or none"]
PREPROCESSING = {
    "mode": "RGB",
    "channels": 3,
    "image_size": 32,
    "resize_size": 36,
    "interpolation": "bicubic",
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.3, 0.25],
}


def build_scorer():
    torch.manual_seed(0)
    model = VisionTransformer(**vit_options(depth=1, in_chans=3, num_classes=len(LABELS))).eval()
    torch.nn.init.normal_(model.head.weight, std=1.0)
    D = model.head.in_features
    features = torch.randn(50 * len(LABELS), D)
    known = KnownClasses.fit(features, torch.arange(len(features)) % len(LABELS)).accept(features, 0.05)
    return Scorer(model, lambda logits: (logits / 0.5).softmax(dim=1), known).eval()


def list_files(folder, **changes):
    """Write bundle.json of what is in the folder."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(folder.iterdir())
        if path.name != "bundle.json"
    }
    about = {"format": 1, "vitlab": "0.2.0.dev0", "name": "tiny", "task": "classification", "files": files, "made": "…"}
    (folder / "bundle.json").write_text(json.dumps(about | changes))
    return folder


def write_bundle(folder, scorer, labels=LABELS, preprocessing=PREPROCESSING):
    folder.mkdir()
    pixels = torch.randn(2, preprocessing["channels"], *[preprocessing["image_size"]] * 2)
    write_onnx(Graph("tiny", scorer, {"pixels": pixels}, scorer.outputs, {"pixels": {0: "B"}}), folder / "model.onnx")
    (folder / "labels.json").write_text(json.dumps(labels))
    (folder / "preprocessing.json").write_text(json.dumps(preprocessing | {"more": "to come"}))
    (folder / "calibration.json").write_text(json.dumps({"temperature": 0.5, "false_alarm_rate": 0.05}))
    return list_files(folder)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """`folder`, and the `scorer` that its model.onnx was written from."""
    scorer = build_scorer()
    return SimpleNamespace(folder=write_bundle(tmp_path_factory.mktemp("bundle") / "tiny", scorer), scorer=scorer)
