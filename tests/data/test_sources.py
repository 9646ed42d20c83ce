"""Every source reads what lies on the disk, and says in one sentence what is wrong with it."""

import pickle
import urllib.error
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from vitlab.data import Digits, Folder, Synthetic, TorchvisionSource
from vitlab.errors import DataError


def refused(source, *words):
    """Preparing and opening raises DataError in one sentence that holds the words."""
    with pytest.raises(DataError) as caught:
        source.prepare() or source.open()
    for word in words:
        assert str(word) in str(caught.value)
    assert "\n" not in str(caught.value)


# -- digits


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    pool = Digits().open()["train"]
    expected = load_digits()
    assert len(pool) == 1797
    assert np.array_equal(pool.pixels, np.round(expected.images / 16 * 255))
    assert np.array_equal(pool.targets, expected.target)
    assert np.array_equal(np.asarray(pool.load(3)), pool.pixels[3])


# -- synthetic


def synthetic(**changes):
    settings = {"num_samples": 60, "num_classes": 4, "in_chans": 3, "image_size": 16, "noise": 0.1}
    return Synthetic(**settings | changes)


@pytest.mark.parametrize(("num_classes", "in_chans", "image_size"), [(1, 1, 1), (4, 3, 16), (7, 5, 33)])
def test_synthetic_images_have_the_size_that_is_asked_for(num_classes, in_chans, image_size):
    source = synthetic(num_classes=num_classes, in_chans=in_chans, image_size=image_size)
    pool = source.open()["train"]
    image = pool.load(59)
    assert (len(pool), len(source.class_names)) == (60, num_classes)
    assert (image.shape, image.dtype) == ((in_chans, image_size, image_size), torch.uint8)
    counts = np.bincount(pool.targets, minlength=num_classes)
    assert counts.max() - counts.min() <= 1


def test_synthetic_images_are_always_the_same_and_all_different():
    first = [synthetic().open()["train"].load(i) for i in range(20)]
    torch.manual_seed(1)
    pool = synthetic().open()["train"]
    assert all(torch.equal(first[i], pool.load(i)) for i in reversed(range(20)))
    assert len({image.numpy().tobytes() for image in first}) == 20


def test_synthetic_classes_can_be_learnt_but_not_from_single_pixels():
    """Nearest class mean: of the spectrum it tells the directions apart, of the pixels it does not."""
    pool = synthetic(num_samples=300, in_chans=1).open()["train"]
    pixels = torch.stack([pool.load(i)[0].float() for i in range(300)])
    targets = torch.from_numpy(pool.targets)

    def accuracy(features):
        means = torch.stack([features[:200][targets[:200] == k].mean(dim=0) for k in range(4)])
        nearest = (features[200:, None] - means).flatten(2).norm(dim=2).argmin(dim=1)
        return (nearest == targets[200:]).float().mean()

    assert accuracy(torch.fft.fft2(pixels - pixels.mean()).abs()) > 0.95
    assert accuracy(pixels) < 0.6


# -- folder


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


@pytest.fixture
def tree(tmp_path):
    """train/ with the classes cat and dog; nested files, hidden ones, and others that are no images."""
    for name in ("dog/2.png", "cat/b.JPG", "cat/a/deep/1.png", "dog/10.png"):
        picture(tmp_path / "train" / name)
    picture(tmp_path / "train" / "cat" / ".hidden.png")
    picture(tmp_path / "train" / ".hidden" / "1.png")
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "readme.txt").write_text("no class")
    return tmp_path


def test_folder_names_classes_in_order_and_finds_nested_images(tree):
    source = Folder(root=str(tree))
    pools = source.open()
    assert source.class_names == ["cat", "dog"]
    assert list(pools) == ["train"]
    names = [str(Path(pools["train"].name(i)).relative_to(tree / "train")) for i in range(len(pools["train"]))]
    assert names == ["cat/a/deep/1.png", "cat/b.JPG", "dog/10.png", "dog/2.png"]
    assert pools["train"].targets.tolist() == [0, 0, 1, 1]
    assert pools["train"].load(0).size == (4, 4)


def test_folder_passes_over_hidden_folders_within_a_class(tree):
    picture(tree / "train" / "cat" / ".thumbnails" / "1.png")
    assert len(Folder(root=str(tree)).open()["train"]) == 4


def test_folder_splits_keep_the_numbers_of_the_training_classes(tree):
    picture(tree / "val" / "dog" / "1.png")
    picture(tree / "test" / "cat" / "1.png")
    picture(tree / "test" / "dog" / "1.png")
    pools = Folder(root=str(tree)).open()
    assert list(pools) == ["train", "val", "test"]
    assert pools["val"].targets.tolist() == [1]  # it has no cat
    assert pools["test"].targets.tolist() == [0, 1]


def test_folder_missing(tmp_path):
    refused(Folder(root=str(tmp_path / "nowhere")), "data.source.root", tmp_path / "nowhere")


def test_folder_without_train(tmp_path):
    refused(Folder(root=str(tmp_path)), tmp_path, "train/<class>/*")


def test_folder_without_classes(tmp_path):
    (tmp_path / "train" / ".hidden").mkdir(parents=True)
    refused(Folder(root=str(tmp_path)), tmp_path / "train", "no class folder")


def test_folder_with_an_empty_class(tree):
    (tree / "train" / "emu").mkdir()
    refused(Folder(root=str(tree)), tree / "train" / "emu", "holds no image")


def test_folder_with_a_class_that_train_does_not_have(tree):
    picture(tree / "val" / "emu" / "1.png")
    refused(Folder(root=str(tree)), tree / "val" / "emu", tree / "train")


def test_folder_with_a_link_to_nothing(tree):
    (tree / "train" / "cat" / "gone.png").symlink_to(tree / "gone.png")
    refused(Folder(root=str(tree)), tree / "train" / "cat" / "gone.png")


# -- torchvision


@pytest.fixture
def offline(monkeypatch):
    """torchvision's download fails at once."""

    def fail(*arguments, **options):
        raise urllib.error.URLError("no network")

    for module in (datasets.cifar, datasets.mnist):
        monkeypatch.setattr(module, "download_and_extract_archive", fail)


def torchvision_source(name, root):
    return TorchvisionSource(dataset=name, root=str(root), in_chans=1 if "MNIST" in name else 3)


def write_cifar(root, dataset, monkeypatch):
    """Two images in each of a CIFAR's files; the checksums of the real ones are not asked for."""
    random = np.random.RandomState(0)
    pixels, targets, files = [], [], [name for name, _ in dataset.train_list + dataset.test_list]
    folder = root / dataset.base_folder
    folder.mkdir(parents=True)
    for name in files:
        data, labels = random.randint(0, 256, (2, 3072), dtype=np.uint8), random.randint(0, 10, 2).tolist()
        key = "labels" if dataset is datasets.CIFAR10 else "fine_labels"
        (folder / name).write_bytes(pickle.dumps({"data": data, key: labels}))
        pixels.append(data)
        targets.append(labels)
    meta = {dataset.meta["key"]: [f"class {k}" for k in range(10)]}
    (folder / dataset.meta["filename"]).write_bytes(pickle.dumps(meta))
    for key in ("train_list", "test_list"):
        monkeypatch.setattr(dataset, key, [[name, None] for name, _ in getattr(dataset, key)])
    monkeypatch.setattr(dataset, "meta", {**dataset.meta, "md5": None})
    return np.stack(pixels), targets


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_cifar_is_read_as_torchvision_lays_it_down(tmp_path, monkeypatch, offline, name):
    pixels, targets = write_cifar(tmp_path, getattr(datasets, name), monkeypatch)
    source = torchvision_source(name, tmp_path)
    source.prepare()
    pools = source.open()
    assert source.class_names == [f"class {k}" for k in range(10)]
    for pool, part in ((pools["train"], slice(0, -1)), (pools["test"], slice(-1, None))):
        expected = pixels[part].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        assert pool.targets.tolist() == list(chain(*targets[part]))
        assert all(np.array_equal(np.asarray(pool.load(i)), expected[i]) for i in range(len(expected)))
    assert pools["train"].name(0) == f"{name} train image 0"


def idx(array):
    """MNIST's file format: 0, 0, a type (8: unsigned bytes), the number of dimensions, the sizes, the bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_mnist(root, name):
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    written = {}
    for seed, split in enumerate(("train", "t10k")):
        random = np.random.RandomState(seed)
        images, labels = random.randint(0, 256, (5, 28, 28), dtype=np.uint8), random.randint(0, 10, 5, dtype=np.uint8)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(labels))
        written["train" if split == "train" else "test"] = images, labels
    return written


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_mnist_is_read_as_torchvision_lays_it_down(tmp_path, offline, name):
    written = write_mnist(tmp_path, name)
    source = torchvision_source(name, tmp_path)
    source.prepare()
    pools = source.open()
    assert len(source.class_names) == 10
    for split, (images, labels) in written.items():
        assert pools[split].targets.tolist() == labels.tolist()
        assert pools[split].load(4).mode == "L"
        assert np.array_equal(np.asarray(pools[split].load(4)), images[4])


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"])
def test_a_data_set_that_cannot_be_downloaded_is_refused_in_one_sentence(tmp_path, offline, name):
    refused(torchvision_source(name, tmp_path / "data"), name, tmp_path / "data", "no network", "put its files there")


def test_a_data_set_that_was_never_prepared_is_refused(tmp_path):
    with pytest.raises(DataError, match="MNIST"):
        torchvision_source("MNIST", tmp_path).open()


@pytest.mark.parametrize("length", [0, 3, 100])
def test_a_damaged_file_is_refused(tmp_path, offline, length):
    write_mnist(tmp_path, "MNIST")
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:length])
    refused(torchvision_source("MNIST", tmp_path), "MNIST", tmp_path)


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path, offline):
    (tmp_path / "file").write_text("")
    refused(torchvision_source("MNIST", tmp_path / "file"), tmp_path / "file")
