"""Data sets of Hugging Face's library, small and on the disk: read as they are stored, never decoded."""

import io
import pickle
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from vitlab.data import HuggingFace
from vitlab.errors import ConfigError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.RandomState(seed).randint(0, 256, (4, 4, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def table(labels, feature=None, seed=0):
    feature = feature or datasets.ClassLabel(names=["cat", "dog"])
    rows = {"img": [{"bytes": png(seed + i), "path": f"{i}.png"} for i in range(len(labels))], "y": labels}
    return datasets.Dataset.from_dict(rows, features=datasets.Features({"img": datasets.Image(), "y": feature}))


def source(name, **changes):
    settings = {
        "config": None,
        "revision": None,
        "image_column": "img",
        "label_column": "y",
        "splits": {"train": "train", "val": None, "test": "test"},
    }
    return HuggingFace(name=str(name), **settings | changes)


@pytest.fixture
def parquet(tmp_path):
    """A folder of Parquet files, as on the hub."""
    (tmp_path / "set").mkdir()
    table([0, 1, 1]).to_parquet(tmp_path / "set" / "train-0.parquet")
    table([1, 0], seed=10).to_parquet(tmp_path / "set" / "test-0.parquet")
    return tmp_path / "set"


@pytest.fixture
def saved(tmp_path):
    pair = datasets.DatasetDict({"train": table([0, 1, 1]), "test": table([1, 0], seed=10)})
    pair.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("kind", ["parquet", "saved"])
def test_images_are_read_as_they_are_stored(kind, request):
    data = source(request.getfixturevalue(kind))
    data.prepare()
    pools = data.open()
    assert data.class_names == ["cat", "dog"]
    assert [pools["train"].targets.tolist(), pools["test"].targets.tolist()] == [[0, 1, 1], [1, 0]]
    assert [pools["train"].load(i) for i in range(3)] == [png(i) for i in range(3)]
    assert pools["test"].load_many(np.array([1, 0])) == [png(11), png(10)]
    assert pools["train"].name(2).endswith("train image 2 (2.png)")
    pickled = pickle.dumps(pools["train"])
    assert len(pickled) < 5000
    assert pickle.loads(pickled).load(1) == png(1)


def test_a_folder_of_images_is_read_from_its_files(tmp_path, picture):
    for split, name, seed in (("train", "cat", 0), ("train", "dog", 1), ("test", "dog", 2)):
        picture(tmp_path / "images" / split / name / f"{seed}.png", seed)
    data = source(tmp_path / "images", image_column="image", label_column="label")
    pools = data.open()
    assert data.class_names == ["cat", "dog"]
    assert pools["train"].targets.tolist() == [0, 1]
    path = tmp_path / "images" / "test" / "dog" / "2.png"
    assert pools["test"].load(0) == path.read_bytes()
    assert str(path) in pools["test"].name(0)
    path.unlink()
    assert isinstance(pools["test"].load_many([0])[0], OSError)


@pytest.mark.parametrize(
    ("labels", "kind", "names"), [([10, 9, 10], "int64", ["9", "10"]), (["b", "a", "b"], "string", ["a", "b"])]
)
def test_labels_without_names_are_sorted(tmp_path, labels, kind, names):
    table(labels, datasets.Value(kind)).save_to_disk(tmp_path / "set")
    data = source(tmp_path / "set", splits={"train": "train"})
    assert data.open()["train"].targets.tolist() == [1, 0, 1]
    assert data.class_names == names


def test_the_fingerprint_changes_with_the_labels_and_the_images(tmp_path):
    def fingerprint(number, **changes):
        table(**{"labels": [0, 1, 1]} | changes).save_to_disk(tmp_path / f"{number}")
        return source(tmp_path / f"{number}", splits={"train": "train"}).open()["train"].fingerprint

    first = fingerprint(0)
    assert fingerprint(1) == first
    assert len({first, fingerprint(2, labels=[0, 1, 0]), fingerprint(3, labels=[0, 1])}) == 3


def test_a_column_split_or_name_that_is_not_there_is_refused(saved, refused):
    refused(source(saved, image_column="image"), "data.source.image_column", "no column image", "img, y")
    refused(source(saved, label_column="label"), "data.source.label_column", "no column label", "img, y")
    refused(source(saved, splits={"train": "all"}), "data.source.splits.train", "no split all", "train, test")
    refused(source(saved, image_column="y"), "data.source.image_column", "holds no images")
    refused(source("nobody/nothing"), "data.source.name", "nobody/nothing")
    refused(source(saved.parent / "nowhere"), "data.source.name", "nowhere")


def test_labels_that_are_no_class_are_refused(tmp_path, refused):
    for name, labels in (("negative", [-1, -1]), ("null", [0, None])):
        both = datasets.DatasetDict({"train": table([0, 1]), "test": table(labels)})
        both.save_to_disk(tmp_path / name)
    refused(source(tmp_path / "negative"), "test", "data.source.splits.test=null")
    refused(source(tmp_path / "null"), "1 image", "no label")


def test_without_the_library_the_package_is_named(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="pip install datasets"):
        source(saved).open()


# -- several classes an image


def lists(labels, feature, seed=0):
    return table(labels, datasets.List(feature), seed)


def test_a_column_of_lists_gives_several_classes(tmp_path):
    numbers = datasets.ClassLabel(names=["ant", "bee", "cat"])
    pair = {"train": lists([[0, 2], [], [1]], numbers), "test": lists([[2], [1, 1]], numbers, 10)}
    datasets.DatasetDict(pair).save_to_disk(tmp_path / "numbers")
    data = source(tmp_path / "numbers")
    pools = data.open()
    assert data.class_names == ["ant", "bee", "cat"]
    assert pools["train"].targets.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert pools["test"].targets.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert pools["train"].load(2) == png(2)


def test_lists_may_hold_words(tmp_path):
    words = lists([["dog", "cat"], ["emu"], []], datasets.Value("string"))
    datasets.DatasetDict({"train": words}).save_to_disk(tmp_path / "words")
    data = source(tmp_path / "words", splits={"train": "train"})
    assert data.open()["train"].targets.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert data.class_names == ["cat", "dog", "emu"]


def test_a_list_with_an_empty_place_is_refused(tmp_path, refused):
    datasets.DatasetDict({"train": lists([[0, None], [1]], datasets.ClassLabel(names=["a", "b"]))}).save_to_disk(
        tmp_path / "holes"
    )
    refused(source(tmp_path / "holes", splits={"train": "train"}), "1 images of train have no label")
