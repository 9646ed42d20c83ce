"""A bundle that is missing, damaged or not for this version is refused in one sentence."""

import json
import shutil

import pytest

from runtime.conftest import PREPROCESSING, list_files
from vitlab_runtime import BundleError, load


@pytest.fixture
def own(bundle, tmp_path):
    return shutil.copytree(bundle.folder, tmp_path / "own")


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "no folder": (shutil.rmtree, "is not a bundle: bundle.json cannot be read"),
    "no bundle.json": (lambda own: (own / "bundle.json").unlink(), "is not a bundle"),
    "cut bundle.json": (lambda own: (own / "bundle.json").write_text("{"), "cannot be used .*copy or export"),
    "another bundle.json": (lambda own: (own / "bundle.json").write_text("[1]"), "cannot be used"),
    "no files": (lambda own: (own / "bundle.json").write_text('{"format": 1, "task": "multilabel"}'), "'files'"),
    "newer": (lambda own: list_files(own, format=2), "has the format 2, .* reads 1; upgrade vitlab-runtime"),
    "older": (lambda own: list_files(own, format=0), "has the format 0, .* reads 1; export the run again"),
    "odd": (lambda own: list_files(own, format="1"), "cannot be used"),
    "features": (lambda own: list_files(own, task="features"), "is of the task features, but only classification"),
    "no model": (lambda own: (own / "model.onnx").unlink(), "model.onnx cannot be read: No such file"),
    "flipped": (lambda own: flip_a_byte(own / "model.onnx"), "model.onnx is not the file that bundle.json lists"),
    "cut": (lambda own: (own / "model.onnx").write_bytes(b""), "model.onnx is not the file that bundle.json lists"),
    "flipped labels": (lambda own: flip_a_byte(own / "labels.json"), "labels.json is not the file"),
    "no labels": (lambda own: (own / "labels.json").unlink(), "labels.json cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_is_refused(own, damage):
    change, sentence = DAMAGES[damage]
    change(own)
    with pytest.raises(BundleError, match=sentence) as caught:
        load(own)
    assert "\n" not in str(caught.value)
    assert str(own) in str(caught.value)


def write_json(name, content):
    return lambda own: (own / name).write_text(json.dumps(content))


MISFITS = {
    "labels": (write_json("labels.json", ["cat", "dog"]), "not .* and 2 labels"),
    "no list": (write_json("labels.json", 5), "cannot be used"),
    "size": (write_json("preprocessing.json", PREPROCESSING | {"image_size": 64}), "not \\[3, 64, 64\\] and 3 labels"),
    "keys": (write_json("preprocessing.json", {"mode": "RGB"}), "cannot be used .*'channels'"),
    "no graph": (lambda own: (own / "model.onnx").write_bytes(b"nothing"), "cannot be used"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_files_that_do_not_fit_each_other_are_refused(own, misfit):
    change, sentence = MISFITS[misfit]
    change(own)
    with pytest.raises(BundleError, match=sentence) as caught:
        load(list_files(own))
    assert "\n" not in str(caught.value)


def test_weights_beside_the_graph_are_checked(own):
    (own / "model.onnx.data").write_bytes(b"weights")
    list_files(own)
    load(own)
    flip_a_byte(own / "model.onnx.data")
    own = own.rename(own.with_name("moved"))
    with pytest.raises(BundleError, match=r"model.onnx.data is not the file"):
        load(own)


def test_other_files_are_not_read(own):
    (own / "classifier.onnx").write_bytes(b"x")
    list_files(own)
    (own / "classifier.onnx").unlink()
    load(own)
