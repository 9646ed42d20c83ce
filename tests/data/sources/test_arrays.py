"""NumPy's files: one archive, one for each split, or mapped arrays; what is no image is refused with what would be."""

import pickle

import numpy as np
import pytest

from vitlab.data import Arrays
from vitlab.errors import ConfigError


def arrays(train, labels=None, val=None, test=None, class_names=None):
    images = {split: file and str(file) for split, file in {"train": train, "val": val, "test": test}.items()}
    labels = {"train": labels and str(labels), "val": None, "test": None}
    return Arrays(images=images, labels=labels, class_names=class_names)


def data(n=12, shape=(5, 6, 3), seed=0):
    random = np.random.RandomState(seed)
    return random.randint(0, 256, (n, *shape), dtype=np.uint8), np.arange(n, dtype=np.int32) % 3


@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 1), (5, 6, 3), (5, 6, 4), (3, 3, 3)])
def test_an_archive_is_read(tmp_path, shape):
    images, labels = data(shape=shape)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    source = arrays(tmp_path / "data.npz")
    pools = source.open()
    assert list(pools) == ["train"]
    assert source.class_names == ["0", "1", "2"]
    assert source.in_chans == (shape[2] if len(shape) == 3 else 1)
    assert pools["train"].targets.tolist() == labels.tolist()
    assert all(np.array_equal(pools["train"].load(i), images[i]) for i in range(12))


def test_an_archive_may_hold_all_splits(tmp_path):
    written = {split: data(n, seed=n) for split, n in {"train": 9, "val": 4, "test": 5}.items()}
    content = {
        f"{split}_{k}": x for split, pair in written.items() for k, x in zip(("images", "labels"), pair, strict=True)
    }
    np.savez(tmp_path / "data.npz", **content)
    pools = arrays(tmp_path / "data.npz").open()
    assert list(pools) == ["train", "val", "test"]
    for split, (images, labels) in written.items():
        assert np.array_equal(pools[split].load(3), images[3])
        assert pools[split].targets.tolist() == labels.tolist()


def test_each_split_may_have_its_file(tmp_path):
    for split, n in (("a", 9), ("b", 4)):
        images, labels = data(n)
        np.savez(tmp_path / f"{split}.npz", images=images, labels=labels)
    pools = arrays(tmp_path / "a.npz", test=tmp_path / "b.npz").open()
    assert {split: len(pool) for split, pool in pools.items()} == {"train": 9, "test": 4}


@pytest.fixture
def pair(tmp_path):
    images, labels = data()
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path / "images.npy", tmp_path / "labels.npy"


def test_npy_files_are_mapped_here_and_in_the_workers(pair):
    pool = arrays(pair[0], labels=pair[1]).open()["train"]
    assert isinstance(pool.pixels, np.memmap)
    assert isinstance(pickle.loads(pickle.dumps(pool)).pixels, np.memmap)
    images, labels = data(12)
    assert np.array_equal(pickle.loads(pickle.dumps(pool)).load(7), images[7])
    assert type(pool.load(7)) is np.ndarray
    assert pool.targets.tolist() == labels.tolist()
    assert pool.name(7) == f"{pair[0]} image 7"
    np.save(pair[0], np.zeros((200, 50, 50, 3), dtype=np.uint8))
    np.save(pair[1], np.zeros(200, dtype=np.int64))
    assert len(pickle.dumps(arrays(pair[0], labels=pair[1]).open()["train"])) < 5000


def test_the_fingerprint_changes_with_a_pixel_and_a_label(pair):
    seen = [arrays(pair[0], labels=pair[1]).open()["train"].fingerprint]
    for file in pair:
        array = np.load(file)
        array.flat[5] = 1 - array.flat[5] % 2
        np.save(file, array)
        seen.append(arrays(pair[0], labels=pair[1]).open()["train"].fingerprint)
    assert len(set(seen)) == 3


def test_class_names_can_be_given(pair, refused):
    source = arrays(pair[0], labels=pair[1], class_names=["a", "b", "c", "d"])
    source.open()
    assert source.class_names == ["a", "b", "c", "d"]
    refused(arrays(pair[0], labels=pair[1], class_names=["a", "b"]), "data.source.class_names has 2 names")


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, int), ["4 x 3 x 8 x 8", "transpose(0, 2, 3, 1)"]),
        (np.zeros((4, 8, 8), np.float32), np.zeros(4, int), ["float32", "uint8 from 0 to 255"]),
        (np.zeros((4, 8, 8), np.uint16), np.zeros(4, int), ["uint16"]),
        (np.zeros((4, 64), np.uint8), np.zeros(4, int), ["4 x 64", "(n, H, W)"]),
        (np.zeros((4, 8, 8), np.uint8), np.zeros(4), ["labels", "float64", "whole number"]),
        (np.zeros((4, 8, 8), np.uint8), np.zeros((4, 1), int), ["labels", "2 dimension(s)"]),
        (np.zeros((4, 8, 8), np.uint8), np.zeros(5, int), ["5 labels for 4 images"]),
        (np.zeros((0, 8, 8), np.uint8), np.zeros(0, int), ["0 labels"]),
        (np.zeros((4, 8, 8), np.uint8), np.array([0, 1, -1, 1]), ["-1", "count from 0"]),
    ],
)
def test_what_is_no_image_or_class_is_refused(tmp_path, images, labels, words, refused):
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    refused(arrays(tmp_path / "data.npz"), tmp_path / "data.npz", *words)
    np.save(tmp_path / "i.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    refused(arrays(tmp_path / "i.npy", labels=tmp_path / "labels.npy"), *words)


def test_files_that_are_missing_damaged_or_of_other_content_are_refused(tmp_path, pair, refused):
    refused(arrays(tmp_path / "gone.npz"), tmp_path / "gone.npz", "no file")
    refused(arrays(pair[0], labels=tmp_path / "gone.npy"), tmp_path / "gone.npy", "no file")
    np.savez(tmp_path / "other.npz", x=np.zeros(3), images=np.zeros(3))
    refused(arrays(tmp_path / "other.npz"), "no array labels", "x, images")
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    refused(arrays(tmp_path / "objects.npy", labels=pair[1]), tmp_path / "objects.npy", "cannot be read")
    pair[0].write_bytes(pair[0].read_bytes()[:-1])
    refused(arrays(pair[0], labels=pair[1]), pair[0], "cannot be read")
    images, labels = data(100)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    content = bytearray((tmp_path / "data.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "data.npz").write_bytes(content)
    refused(arrays(tmp_path / "data.npz"), tmp_path / "data.npz", "damaged")


def test_splits_of_other_channels_are_refused(tmp_path, refused):
    for name, shape in (("gray", (5, 6)), ("colour", (5, 6, 3))):
        images, labels = data(shape=shape)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=labels)
    refused(arrays(tmp_path / "gray.npz", test=tmp_path / "colour.npz"), "differ in channels")


def test_settings_that_name_no_array_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.source\.images\.train is missing"):
        arrays(None)
    with pytest.raises(ConfigError, match="neither"):
        arrays(tmp_path / "images.png")
    with pytest.raises(ConfigError, match=r"data\.source\.labels\.train is missing"):
        arrays(tmp_path / "images.npy")


# -- several classes an image


@pytest.mark.parametrize("kind", [np.uint8, np.int64, bool])
def test_a_row_of_labels_may_hold_several_classes(tmp_path, kind):
    images, _ = data()
    hot = (np.random.RandomState(0).rand(12, 4) < 0.5).astype(kind)
    np.savez(tmp_path / "data.npz", images=images, labels=hot)
    source = arrays(tmp_path / "data.npz", class_names=["a", "b", "c", "d"])
    pool = source.open()["train"]
    assert np.array_equal(pool.targets.values, hot)
    assert pool.targets.values.dtype == np.uint8
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", hot)
    mapped = arrays(tmp_path / "images.npy", tmp_path / "labels.npy")
    assert np.array_equal(mapped.open()["train"].targets.values, hot)
    assert mapped.class_names == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.full((12, 3), 2), "holds 2; where an image may have several classes, 1 says"),
        (np.full((12, 3), -1), "holds -1"),
        (np.ones((12, 3)), "float64 in 2 dimension"),
        (np.ones((12, 1), int), "in 2 dimension"),
        (np.ones((11, 3), int), "11 labels for 12 images"),
        (np.ones((12, 3, 2), int), "in 3 dimension"),
    ],
)
def test_rows_that_are_no_zeros_and_ones_are_refused(tmp_path, labels, words, refused):
    np.savez(tmp_path / "data.npz", images=data()[0], labels=labels)
    refused(arrays(tmp_path / "data.npz"), words)


def test_columns_that_do_not_fit_are_refused(tmp_path, refused):
    images, labels = data()
    hot = np.eye(3, dtype=np.uint8)[labels]
    np.savez(tmp_path / "data.npz", train_images=images, train_labels=hot, test_images=images, test_labels=labels)
    refused(arrays(tmp_path / "data.npz"), "data.source.labels", "12 x 3, 12", "the same columns")
    np.savez(tmp_path / "data.npz", images=images, labels=hot)
    refused(arrays(tmp_path / "data.npz", class_names=list("abcd")), "class_names has 4 names", "3 columns")
