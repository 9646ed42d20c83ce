"""A predictor tells of each image what the run's model tells, in columns, and can be pickled."""

import faulthandler
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from pictures import noise, photo, stored
from PIL import Image

from runtime.conftest import LABELS, PREPROCESSING, list_files
from vitlab.tasks.predictions import rank_classes
from vitlab_runtime import BundleError, Predictor, load
from vitlab_runtime import bundle as bundles
from vitlab_runtime.pixels import Preprocessing

COLUMNS = [
    *("class", "probability", "class_1", "probability_1", "class_2", "probability_2", "class_3", "probability_3"),
    *("novelty", "none_of_these", "error"),
]


@pytest.fixture(scope="module")
def predictor(bundle):
    return load(bundle.folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(7):
        (folder / f"{number}.jpg").write_bytes(stored(photo(40 + number, 64, seed=number), "JPEG"))
    return sorted(map(str, folder.iterdir()))


def ask_model(scorer, images):
    """What `vitlab predict` tells, by torch."""
    own = Preprocessing(**PREPROCESSING)
    with torch.inference_mode():
        _, probabilities, novelty = scorer(
            torch.from_numpy(own.normalize(np.stack([own.load(image) for image in images])))
        )
    return [one.columns() for one in rank_classes(probabilities, LABELS, 5, [None] * len(images), novelty)]


def test_columns_are_those_of_the_run(predictor, bundle, files):
    columns = predictor({"image": files})
    assert list(columns) == ["image", *COLUMNS]
    assert columns["image"].tolist() == files
    for row, expected in enumerate(ask_model(bundle.scorer, files)):
        assert list(expected) == COLUMNS[2:-1]
        for name, value in expected.items():
            found = columns[name][row].item()
            bound = 1e-4 if name == "novelty" else 2e-6  # by the digits that vitlab writes
            assert found == (pytest.approx(value, abs=bound) if isinstance(value, float) else value)
    assert np.array_equal(columns["class"], columns["class_1"])
    assert np.array_equal(columns["probability"], columns["probability_1"])
    assert len(set(columns["class"])) > 1


def test_images_may_be_of_any_kind(predictor, files):
    expected = predictor(files)
    contents = [Path(name).read_bytes() for name in files]
    pictures = [Image.open(name) for name in files]
    for images in (contents, pictures, [np.asarray(picture) for picture in pictures], [*files[:3], *pictures[3:]]):
        columns = predictor({"image": images, "number": range(7)})
        assert columns.pop("number").tolist() == list(range(7))
        assert "image" not in columns
        for name, column in columns.items():
            assert np.array_equal(column, expected[name]), name


def test_an_image_that_cannot_be_read_ends_no_batch(predictor, files):
    expected = predictor([files[0], files[1]])
    columns = predictor([files[0], b"nothing", files[1], "none.png"])
    assert columns["error"].tolist()[::2] == ["", ""]
    assert columns["error"][1] == "cannot read bytes: no image that Pillow knows"
    assert columns["error"][3].startswith("cannot read none.png: ")
    for name in COLUMNS[:-1]:
        assert np.array_equal(columns[name][[0, 2]], expected[name])
        lost = columns[name][[1, 3]]
        assert lost.tolist() == ["", ""] if lost.dtype.kind == "U" else np.isnan(lost).all()
    assert all(predictor([b"nothing"] * 3)["error"])


def test_batches_are_scored_in_parts(bundle, files, monkeypatch):
    sizes = []
    plain = bundles.Bundle.score
    monkeypatch.setattr(bundles.Bundle, "score", lambda self, pixels: sizes.append(len(pixels)) or plain(self, pixels))
    columns = load(bundle.folder, batch_size=3)([*files[:4], b"", *files[4:]])
    assert sizes == [3, 2, 2]
    whole = load(bundle.folder)(files)
    assert np.allclose(np.delete(columns["probability"], 4), whole["probability"], atol=1e-6)


def test_an_empty_batch_has_the_columns_of_any(predictor):
    columns = predictor({"image": []})
    assert list(columns) == ["image", *COLUMNS]
    assert {len(column) for column in columns.values()} == {0}


def test_a_batch_of_arrays_may_be_one_array(predictor):
    batch = noise(4, 20, 30, 3)
    assert np.array_equal(predictor({"image": batch})["class"], predictor(list(batch))["class"])


@pytest.mark.parametrize("batch", ["photo.jpg", b"content", Image.new("L", (3, 3)), {"path": ["a"]}, {"image": "a"}])
def test_what_is_no_batch_is_refused(predictor, batch):
    with pytest.raises(ValueError, match="a batch is a list of images, or a dict of columns"):
        predictor(batch)


@pytest.mark.parametrize("options", [{"threads": -1}, {"threads": 1025}, {"top_k": 0}, {"batch_size": 0}])
def test_options_out_of_range_are_refused(bundle, options):
    with pytest.raises(ValueError, match="must be 0 to 1024, and"):
        load(bundle.folder, **options)


def test_a_pickled_predictor_opens_the_bundle_once_for_all_its_copies(bundle, files):
    predictor = load(bundle.folder, threads=1)
    content = pickle.dumps(predictor)
    assert len(content) < 1000
    before = bundles.open_bundle.cache_info().misses
    copies = [pickle.loads(content) for _ in range(3)]
    assert all(copy == predictor for copy in copies)
    assert all(np.array_equal(copy(files)["class"], predictor(files)["class"]) for copy in copies)
    assert bundles.open_bundle.cache_info().misses == before


def test_threads_may_share_a_predictor(predictor, files):
    expected = predictor(files)["probability"]
    with ThreadPoolExecutor(4) as pool:
        assert all(np.allclose(found["probability"], expected) for found in pool.map(predictor, [files] * 8))


def test_a_forked_process_opens_its_own_session(predictor, files):
    expected = predictor(files)["class"].tolist()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(0 if predictor(files)["class"].tolist() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_bundle_that_another_has_replaced_is_not_used(bundle, files, tmp_path):
    predictor = load(shutil.copytree(bundle.folder, tmp_path / "own"))
    list_files(tmp_path / "own", name="newer")
    bundles.open_bundle.cache_clear()  # as in another process
    with pytest.raises(BundleError, match="is not the bundle that the predictor was loaded from"):
        predictor(files)
    assert isinstance(load(tmp_path / "own"), Predictor)


def test_a_bundle_without_novelty_has_no_such_columns(bundle, files, tmp_path):
    own = shutil.copytree(bundle.folder, tmp_path / "own")
    graph = onnx.load(own / "model.onnx")
    del graph.graph.output[2]
    onnx.save(graph, own / "model.onnx")
    columns = load(list_files(own, task="multilabel"), top_k=1)(files)
    assert list(columns) == ["image", "class", "probability", "class_1", "probability_1", "error"]
