"""What torchvision downloads is read as it lays it down: small files of the same form, its own code and checks."""

import functools
import hashlib
import importlib.machinery
import io
import json
import os
import pickle
import sys
import tarfile
import types
import urllib.error
import urllib.request
import zipfile
from itertools import chain

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

from vitlab.data import TorchvisionSource
from vitlab.errors import ConfigError, DataError


def source(name, root):
    return TorchvisionSource(dataset=name, root=str(root))


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No address can be opened."""

    def fail(*arguments, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", fail)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def jpeg(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.RandomState(seed).randint(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()


def write_tar(path, files):
    """A gzipped archive of the files {name: content}; its MD5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return md5(path)


# -- pixels in memory


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
        monkeypatch.setattr(dataset, key, [[name, md5(folder / name)] for name, _ in getattr(dataset, key)])
    monkeypatch.setattr(dataset, "meta", {**dataset.meta, "md5": md5(folder / dataset.meta["filename"])})
    return np.stack(pixels), targets


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_cifar(tmp_path, monkeypatch, name, refused):
    pixels, targets = write_cifar(tmp_path, getattr(datasets, name), monkeypatch)
    cifar = source(name, tmp_path)
    cifar.prepare()
    pools = cifar.open()
    assert cifar.class_names == [f"class {k}" for k in range(10)]
    for pool, part in ((pools["train"], slice(0, -1)), (pools["test"], slice(-1, None))):
        expected = pixels[part].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        assert pool.targets.tolist() == list(chain(*targets[part]))
        assert all(np.array_equal(pool.load(i), expected[i]) for i in range(len(expected)))
    assert pools["train"].name(0) == f"{name} train image 0"
    damaged = tmp_path / getattr(datasets, name).base_folder / getattr(datasets, name).test_list[0][0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused(source(name, tmp_path), name, tmp_path)


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
def test_mnist(tmp_path, name):
    written = write_mnist(tmp_path, name)
    mnist = source(name, tmp_path)
    mnist.prepare()
    pools = mnist.open()
    assert (len(mnist.class_names), mnist.in_chans) == (10, 1)
    for split, (images, labels) in written.items():
        assert pools[split].targets.tolist() == labels.tolist()
        assert np.array_equal(pools[split].load(4), images[4])


@pytest.mark.parametrize("length", [0, 3, 100])
def test_a_damaged_file_is_refused(tmp_path, length, refused):
    write_mnist(tmp_path, "MNIST")
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:length])
    refused(source("MNIST", tmp_path), "MNIST", tmp_path)


def test_svhn(tmp_path, monkeypatch, refused):
    random = np.random.RandomState(0)
    lists, written = {}, {}
    for split in ("train", "test"):
        images = random.randint(0, 256, (32, 32, 3, 20), dtype=np.uint8)
        labels = random.permutation(np.arange(20) % 10 + 1).astype(np.uint8)
        path = tmp_path / f"{split}_32x32.mat"
        savemat(path, {"X": images, "y": labels[:, None]})
        lists[split] = ["https://localhost/none", path.name, md5(path)]
        written[split] = images, labels
    monkeypatch.setattr(datasets.SVHN, "split_list", lists)
    svhn = source("SVHN", tmp_path)
    svhn.prepare()
    pools = svhn.open()
    assert svhn.class_names == [str(k) for k in range(10)]
    for split, (images, labels) in written.items():
        assert pools[split].targets.tolist() == (labels % 10).tolist()  # 10 is how its files write 0
        assert all(np.array_equal(pools[split].load(i), images[..., i]) for i in range(20))
    (tmp_path / "test_32x32.mat").write_bytes(b"damaged")
    refused(source("SVHN", tmp_path), "SVHN", tmp_path)


# -- files


def write_pets(root, monkeypatch):
    photos = {f"{breed}_{i}": jpeg(i) for breed in ("Abyssinian", "american_bulldog") for i in range(4)}
    ids = list(photos)
    lists = {"trainval": [ids[0], ids[1], ids[4]], "test": [ids[5], ids[3]]}
    texts = {
        f"annotations/{split}.txt": "".join(f"{i} {1 + (i[0] == 'a')} 1 1\n" for i in listed).encode()
        for split, listed in lists.items()
    }
    folder = root / "oxford-iiit-pet"
    archives = {
        "images.tar.gz": write_tar(folder / "images.tar.gz", {f"images/{i}.jpg": photos[i] for i in ids}),
        "annotations.tar.gz": write_tar(folder / "annotations.tar.gz", texts),
    }
    resources = tuple((f"https://localhost/{name}", sums) for name, sums in archives.items())
    monkeypatch.setattr(datasets.OxfordIIITPet, "_RESOURCES", resources)
    return folder / "images", {
        "train": [(photos[ids[0]], 0), (photos[ids[1]], 0), (photos[ids[4]], 1)],
        "test": [(photos[ids[5]], 1), (photos[ids[3]], 0)],
    }


def write_flowers(root, monkeypatch):
    folder = root / "flowers-102"
    photos = {i: jpeg(i) for i in range(1, 7)}
    sums = write_tar(folder / "102flowers.tgz", {f"jpg/image_{i:05d}.jpg": photo for i, photo in photos.items()})
    savemat(folder / "imagelabels.mat", {"labels": np.array([[5, 1, 5, 102, 1, 1]])})
    savemat(folder / "setid.mat", {"trnid": [[6, 1]], "valid": [[2, 3]], "tstid": [[4, 5]]})
    table = {key: (name, md5(folder / name)) for key, (name, _) in datasets.Flowers102._file_dict.items()}
    assert table["image"][1] == sums
    monkeypatch.setattr(datasets.Flowers102, "_file_dict", table)
    return folder / "jpg", {
        "train": [(photos[6], 0), (photos[1], 4)],
        "val": [(photos[2], 0), (photos[3], 4)],
        "test": [(photos[4], 101), (photos[5], 0)],
    }


def write_food(root, monkeypatch):
    lists = {
        "train": {"pie": ["pie/1", "pie/2"], "apple": ["apple/7"]},
        "test": {"pie": ["pie/3"], "apple": ["apple/8"]},
    }
    names = [name for split in lists.values() for files in split.values() for name in files]
    photos = {name: jpeg(seed) for seed, name in enumerate(names)}
    files = {f"food-101/images/{name}.jpg": photo for name, photo in photos.items()}
    files |= {f"food-101/meta/{split}.json": json.dumps(listed).encode() for split, listed in lists.items()}
    monkeypatch.setattr(datasets.Food101, "_MD5", write_tar(root / "food-101.tar.gz", files))
    return root / "food-101", {
        "train": [(photos["pie/1"], 1), (photos["pie/2"], 1), (photos["apple/7"], 0)],
        "test": [(photos["pie/3"], 1), (photos["apple/8"], 0)],
    }


def write_eurosat(root, monkeypatch):
    photos = {name: jpeg(seed) for seed, name in enumerate(["Forest/1", "Forest/2", "River/1"])}
    (root / "eurosat").mkdir(parents=True)
    with zipfile.ZipFile(root / "eurosat" / "EuroSAT.zip", "w") as archive:
        for name, photo in photos.items():
            archive.writestr(f"2750/{name}.jpg", photo)
    module = datasets.eurosat  # its checksum stands in the call
    other = functools.partial(module.download_and_extract_archive, md5=md5(root / "eurosat" / "EuroSAT.zip"))
    monkeypatch.setattr(
        module, "download_and_extract_archive", lambda url, download_root, md5: other(url, download_root)
    )
    return root / "eurosat" / "2750", {"train": list(zip(photos.values(), [0, 0, 1], strict=True))}


def write_zip(path, files):
    """An archive of the files {name: content}; its MD5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return md5(path)


def write_caltech(root, monkeypatch):
    """An archive in an archive; its first folder is no class."""
    names = ["BACKGROUND_Google/image_0001", "ant/image_0001", "ant/image_0002", "crab/image_0001"]
    photos = {name: jpeg(seed) for seed, name in enumerate(names)}
    inner = root / "101_ObjectCategories.tar.gz"
    write_tar(inner, {f"101_ObjectCategories/{name}.jpg": photo for name, photo in photos.items()})
    path = root / "caltech101" / "caltech-101.zip"
    checksum = write_zip(path, {f"caltech-101/{inner.name}": inner.read_bytes()})
    inner.unlink()
    module = datasets.caltech  # its checksum stands in the call
    fetch, content = module.download_and_extract_archive, path.read_bytes()

    def fetched(url, download_root, filename, md5):
        if not path.is_file():  # torchvision removes it in the end
            path.write_bytes(content)
        fetch(url, download_root, filename=filename, md5=checksum)

    monkeypatch.setattr(module, "download_and_extract_archive", fetched)
    return root / "caltech101" / "101_ObjectCategories", {
        "train": [(photos[name], k) for name, k in zip(names[1:], [0, 0, 1], strict=True)]
    }


def write_dtd(root, monkeypatch):
    lists = {
        "train": ["dotted/1", "woven/1", "dotted/2"],
        "val": ["woven/2", "dotted/3"],
        "test": ["dotted/4", "woven/3"],
    }
    names = [name for listed in lists.values() for name in listed]
    photos = {name: jpeg(seed) for seed, name in enumerate(names)}
    files = {f"dtd/images/{name}.jpg": photo for name, photo in photos.items()}
    for split, listed in lists.items():
        files[f"dtd/labels/{split}1.txt"] = "".join(f"{name}.jpg\n" for name in listed).encode()
    monkeypatch.setattr(datasets.DTD, "_MD5", write_tar(root / "dtd" / "dtd-r1.0.1.tar.gz", files))
    return root / "dtd" / "dtd", {
        split: [(photos[name], int(name.startswith("woven"))) for name in listed] for split, listed in lists.items()
    }


def write_sun(root, monkeypatch):
    """Paths are in no order on the disk, and kinds of scene may lie in each other."""
    names = ["b/bar/sun_z", "a/abbey/sun_b", "b/bath/indoor/sun_a", "a/abbey/sun_a"]
    photos = {name: jpeg(seed) for seed, name in enumerate(names)}
    files = {f"SUN397/{name}.jpg": photo for name, photo in photos.items()}
    files["SUN397/ClassName.txt"] = b"/a/abbey\n/b/bar\n/b/bath/indoor\n"
    monkeypatch.setattr(datasets.SUN397, "_DATASET_MD5", write_tar(root / "SUN397.tar.gz", files))
    classes = {"a/abbey": 0, "b/bar": 1, "b/bath/indoor": 2}
    return root / "SUN397", {"train": [(photos[name], classes[name.rpartition("/")[0]]) for name in sorted(names)]}


def write_clevr(root, monkeypatch):
    numbers = {"train": [3, 10, 4, 3], "val": [5, 3], "test": [0]}
    photos = {split: [jpeg(i) for i in range(len(n))] for split, n in numbers.items()}
    files = {}
    for split, counts in numbers.items():
        names = [f"CLEVR_{split}_{i:06d}.png" for i in range(len(counts))]
        files |= {f"CLEVR_v1.0/images/{split}/{n}": p for n, p in zip(names, photos[split], strict=True)}
        scenes = [
            {"image_filename": n, "objects": [{"pixel_coords": [1, 2, 12.0 - 0.5 * i]} for i in range(c)]}
            for n, c in zip(names, counts, strict=True)
        ]
        if split != "test":
            files[f"CLEVR_v1.0/scenes/CLEVR_{split}_scenes.json"] = json.dumps({"scenes": scenes}).encode()
    monkeypatch.setattr(datasets.CLEVRClassification, "_MD5", write_zip(root / "clevr" / "CLEVR_v1.0.zip", files))
    return root / "clevr" / "CLEVR_v1.0", {
        split: [(photo, count - 3) for photo, count in zip(photos[theirs], numbers[theirs], strict=True)]
        for split, theirs in {"train": "train", "test": "val"}.items()
    }


def write_clevr_distances(root, monkeypatch):
    """Of c objects the nearest is 12.5 - c / 2 away: 11, 7.5, 10.5 and 11."""
    folder, expected = write_clevr(root, monkeypatch)
    classes = {"train": [5, 0, 5, 5], "test": [4, 5]}
    return folder, {
        split: [(photo, k) for (photo, _), k in zip(expected[split], classes[split], strict=True)] for split in expected
    }


def write_kitti(root, monkeypatch):
    """Nearest: a car at 8 m, the second van at 20 m, a truck beyond, and pedestrians alone."""
    things = [[("Car", 8.0), ("Pedestrian", 1.0)], [("Van", 60.0), ("Van", 20.0)], [("Truck", 20.5)], [("Tram", 3.0)]]
    photos, raw = [jpeg(i) for i in range(4)], root / "Kitti" / "raw"
    names = [f"00000{i}" for i in (2, 0, 3, 1)]
    images = {f"training/image_2/{name}.png": photo for name, photo in zip(names, photos, strict=True)}
    labels = {
        f"training/label_2/{name}.txt": "".join(
            f"{kind} 0 0 0 1 2 3 4 1 1 1 0 0 {z} 0\n" for kind, z in listed
        ).encode()
        for name, listed in zip(names, things, strict=True)
    }
    write_zip(raw / "data_object_image_2.zip", images)
    write_zip(raw / "data_object_label_2.zip", labels)
    return raw / "training", {"train": [(photos[i], i) for i in (1, 3, 0, 2)]}


MARKED = {"CLEVRDistance": "CLEVRClassification"}  # data sets that are another question to the same pictures
FILES = {
    "CLEVRDistance": write_clevr_distances,
    "Kitti": write_kitti,
    "OxfordIIITPet": write_pets,
    "Flowers102": write_flowers,
    "Food101": write_food,
    "EuroSAT": write_eurosat,
    "Caltech101": write_caltech,
    "DTD": write_dtd,
    "SUN397": write_sun,
    "CLEVRClassification": write_clevr,
}
CLASSES = {
    "CLEVRDistance": ["up to 8", "up to 8.5", "up to 9", "up to 9.5", "up to 10", "further"],
    "Kitti": ["up to 8 m", "up to 20 m", "further", "no vehicle"],
    "Caltech101": ["ant", "crab"],
    "DTD": ["dotted", "woven"],
    "SUN397": ["abbey", "bar", "bath/indoor"],
    "CLEVRClassification": [f"{number} objects" for number in range(3, 11)],
    "OxfordIIITPet": ["Abyssinian", "American Bulldog"],
    "Flowers102": datasets.Flowers102.classes,
    "Food101": ["apple", "pie"],
    "EuroSAT": ["Forest", "River"],
}


@pytest.mark.parametrize("name", FILES)
def test_archives_are_unpacked_and_their_files_read(tmp_path, monkeypatch, name):
    _, expected = FILES[name](tmp_path, monkeypatch)
    files = source(name, tmp_path)
    files.prepare()
    pools = files.open()
    assert (files.class_names, files.in_chans) == (CLASSES[name], None)
    assert list(pools) == list(expected)
    for split, images in expected.items():
        assert [(pools[split].load(i), int(pools[split].targets.values[i])) for i in range(len(images))] == images
        assert pickle.loads(pickle.dumps(pools[split])).name(0) == pools[split].name(0)
    assert os.path.isfile(pools["train"].name(0))


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_archive_is_refused(tmp_path, monkeypatch, name, refused):
    FILES[name](tmp_path, monkeypatch)
    for archive in [*tmp_path.rglob("*gz"), *tmp_path.rglob("*.zip")]:
        archive.write_bytes(archive.read_bytes()[:-9])
    refused(source(name, tmp_path), name, tmp_path, "put its files there")


@pytest.mark.parametrize("name", FILES)
def test_what_a_killed_process_half_unpacked_is_unpacked_again(tmp_path, monkeypatch, name):
    unpacked, expected = FILES[name](tmp_path, monkeypatch)
    source(name, tmp_path).prepare()
    lost = next(path for path in unpacked.rglob("*") if path.suffix in (".jpg", ".png"))
    lost.unlink()
    marker = tmp_path / f".{MARKED.get(name, name)}.unfinished"
    marker.write_text(os.path.relpath(unpacked, tmp_path))
    source(name, tmp_path).prepare()
    assert lost.is_file()
    assert not marker.exists()
    assert len(source(name, tmp_path).open()["train"]) == len(expected["train"])


def test_an_archive_without_a_checksum_that_came_in_part_is_fetched_again(tmp_path, monkeypatch):
    write_kitti(tmp_path, monkeypatch)
    archive = tmp_path / "Kitti" / "raw" / "data_object_image_2.zip"
    content = archive.read_bytes()
    archive.write_bytes(content[:50])
    (tmp_path / ".Kitti.unfinished").write_text("Kitti/raw/training")
    fetch = datasets.kitti.download_and_extract_archive

    def fetched(url, download_root, filename):
        if not archive.is_file():
            archive.write_bytes(content)
        fetch(url, download_root, filename=filename)

    monkeypatch.setattr(datasets.kitti, "download_and_extract_archive", fetched)
    source("Kitti", tmp_path).prepare()
    assert len(source("Kitti", tmp_path).open()["train"]) == 4


def test_what_lay_there_before_is_not_removed(tmp_path, monkeypatch, refused):
    write_pets(tmp_path, monkeypatch)
    source("OxfordIIITPet", tmp_path).prepare()
    mine = next((tmp_path / "oxford-iiit-pet" / "images").iterdir())
    annotations = tmp_path / "oxford-iiit-pet" / "annotations"
    annotations.rename(tmp_path / "elsewhere")
    (tmp_path / "oxford-iiit-pet" / "images.tar.gz").unlink()
    refused(source("OxfordIIITPet", tmp_path), "no network")
    assert mine.is_file()
    (tmp_path / "elsewhere").rename(annotations)
    source("OxfordIIITPet", tmp_path).prepare()
    assert mine.is_file()


# -- PatchCamelyon's HDF5


class StandIn:
    """h5py's File, as far as it is used here, on .npz: the package is not needed to run the tests."""

    opened = 0

    def __init__(self, path, mode="r"):
        type(self).opened += 1
        try:
            with np.load(path, allow_pickle=False) as arrays:
                self.arrays = dict(arrays)
        except Exception as error:
            raise OSError("unable to open file") from error

    def __getitem__(self, name):
        return self.arrays[name]

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass


@pytest.fixture
def patches(tmp_path, monkeypatch):
    module = types.ModuleType("h5py")
    module.__spec__ = importlib.machinery.ModuleSpec("h5py", None)
    module.File = StandIn
    monkeypatch.setitem(sys.modules, "h5py", module)
    written = {}
    (tmp_path / "pcam").mkdir()
    for split, files in datasets.PCAM._FILES.items():
        random = np.random.RandomState(len(split))
        x, y = random.randint(0, 256, (6, 96, 96, 3), dtype=np.uint8), random.permutation([0, 1] * 3).astype(np.uint8)
        for what, content in {"images": {"x": x}, "targets": {"y": y.reshape(6, 1, 1, 1)}}.items():
            with open(tmp_path / "pcam" / files[what][0], "wb") as file:
                np.savez(file, **content)
        written[split] = x, y
    return written


def test_patches_are_read_from_their_files(tmp_path, patches):
    pcam = source("PCAM", tmp_path)
    pcam.prepare()
    pools = pcam.open()
    assert (list(pools), pcam.class_names, pcam.in_chans) == (["train", "val", "test"], ["normal", "tumor"], 3)
    for split, (x, y) in patches.items():
        assert pools[split].targets.tolist() == y.tolist()
        assert all(np.array_equal(pools[split].load(i), x[i]) for i in range(6))
    assert len({pool.fingerprint for pool in pools.values()}) == 3


def test_each_process_opens_the_patches_for_itself(tmp_path, patches, monkeypatch):
    pool = source("PCAM", tmp_path).open()["train"]
    pool.load(0)
    before = StandIn.opened
    pool.load(1)
    assert StandIn.opened == before
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a fork
    assert np.array_equal(pool.load(1), patches["train"][0][1])
    assert StandIn.opened == before + 1
    content = pickle.dumps(pool)
    assert len(content) < 2000
    assert np.array_equal(pickle.loads(content).load(2), patches["train"][0][2])


def test_damaged_patches_are_refused(tmp_path, patches, refused):
    (tmp_path / datasets.PCAM._FILES["val"]["images"][0]).parent.mkdir(exist_ok=True)
    (tmp_path / "pcam" / datasets.PCAM._FILES["val"]["images"][0]).write_bytes(b"damaged")
    refused(source("PCAM", tmp_path), "camelyonpatch_level_2_split_valid_x.h5", "damaged")


def test_half_unpacked_patches_are_removed(tmp_path, patches, refused):
    half = "pcam/camelyonpatch_level_2_split_valid_x.h5"
    (tmp_path / ".PCAM.unfinished").write_text(half)
    refused(source("PCAM", tmp_path), "PCAM", tmp_path)
    assert not (tmp_path / half).exists()
    assert (tmp_path / "pcam" / "camelyonpatch_level_2_split_valid_y.h5").exists()


def test_patches_without_h5py_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("vitlab.data.sources.torchvision_sources.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the package h5py; pip install h5py"):
        source("PCAM", tmp_path)


# -- all


ALL = ["MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "SVHN", *FILES]


@pytest.mark.parametrize("name", ALL)
def test_a_data_set_that_cannot_be_downloaded_is_refused_in_one_sentence(tmp_path, name, refused):
    refused(source(name, tmp_path / "data"), name, tmp_path / "data", "put its files there")


@pytest.mark.parametrize("name", ALL)
def test_a_data_set_that_was_never_prepared_is_refused(tmp_path, name):
    with pytest.raises(DataError, match=name):
        source(name, tmp_path).open()


def test_a_data_set_that_is_there_needs_no_right_to_write(tmp_path, monkeypatch):
    write_mnist(tmp_path, "MNIST")
    before = sorted(tmp_path.rglob("*"))
    source("MNIST", tmp_path).prepare()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path, refused):
    (tmp_path / "file").write_text("")
    refused(source("MNIST", tmp_path / "file"), tmp_path / "file")


def test_an_unknown_data_set_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'ImageNette' is not one of: MNIST"):
        source("ImageNette", tmp_path)
