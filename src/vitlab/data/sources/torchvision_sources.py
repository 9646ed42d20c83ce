"""The data sets that torchvision downloads and checks: small ones as pixels in memory, large ones as files."""

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import is_zipfile

import numpy as np
from filelock import FileLock

from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import ArrayPool, Pool, Source
from vitlab.data.sources.distances import OBJECT_CLASSES, VEHICLE_CLASSES, find_nearest_object, find_nearest_vehicle
from vitlab.data.sources.pcam import PATCHES, patches
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError, DataError, format_error

Files = tuple[list[Any], list[int]]  # paths and classes (n,)


class TorchvisionLayout(NamedTuple):
    """How torchvision's class is called for each of its splits, and what it leaves in `root`."""

    splits: dict[str, dict[str, Any]]
    in_chans: int | None  # None for image files, which may differ
    unpacked: tuple[str, ...] = ()  # folders, or files, that are taken as complete as soon as they are there
    first_label: int = 0
    class_names: tuple[str, ...] = ()  # where torchvision says none
    needs: str | None = None  # a package
    unchecked: tuple[str, ...] = ()  # archives that torchvision takes as they are
    dataset: str | None = None  # torchvision's class, where this is another question to it
    files: Callable[[Any], Files] | None = None  # where torchvision says other classes


SWITCH = {"train": {"train": True}, "test": {"train": False}}
NAMES = {"train": {"split": "train"}, "test": {"split": "test"}}
LAYOUTS = {
    "MNIST": TorchvisionLayout(SWITCH, 1),
    "FashionMNIST": TorchvisionLayout(SWITCH, 1),
    "CIFAR10": TorchvisionLayout(SWITCH, 3),
    "CIFAR100": TorchvisionLayout(SWITCH, 3),
    "SVHN": TorchvisionLayout(NAMES, 3),
    "OxfordIIITPet": TorchvisionLayout(
        {"train": {"split": "trainval"}, "test": {"split": "test"}},
        None,
        ("oxford-iiit-pet/images", "oxford-iiit-pet/annotations"),
    ),
    "Flowers102": TorchvisionLayout(NAMES | {"val": {"split": "val"}}, None, ("flowers-102/jpg",)),
    "Food101": TorchvisionLayout(NAMES, None, ("food-101",)),
    "EuroSAT": TorchvisionLayout({"train": {}}, None, ("eurosat/2750",)),
    "Caltech101": TorchvisionLayout({"train": {}}, None, ("caltech101/101_ObjectCategories", "caltech101/caltech-101")),
    "DTD": TorchvisionLayout(NAMES | {"val": {"split": "val"}}, None, ("dtd/dtd",)),
    "SUN397": TorchvisionLayout({"train": {}}, None, ("SUN397",)),
    "CLEVRClassification": TorchvisionLayout(  # the number of objects; the published test set has no labels
        {"train": {"split": "train"}, "test": {"split": "val"}},
        None,
        ("clevr/CLEVR_v1.0",),
        first_label=3,
        class_names=tuple(f"{number} objects" for number in range(3, 11)),
    ),
    "CLEVRDistance": TorchvisionLayout(
        {"train": {"split": "train"}, "test": {"split": "val"}},
        None,
        ("clevr/CLEVR_v1.0",),
        class_names=OBJECT_CLASSES,
        dataset="CLEVRClassification",
        files=find_nearest_object,
    ),
    "Kitti": TorchvisionLayout(  # the published test set has no labels
        {"train": {"train": True}},
        None,
        ("Kitti/raw/training",),
        class_names=VEHICLE_CLASSES,
        unchecked=("Kitti/raw/data_object_image_2.zip", "Kitti/raw/data_object_label_2.zip"),
        files=find_nearest_vehicle,
    ),
    "PCAM": TorchvisionLayout(
        NAMES | {"val": {"split": "val"}}, 3, PATCHES, class_names=("normal", "tumor"), needs="h5py"
    ),
}


class TorchvisionSource(Source):
    """The official splits of a torchvision data set; what it does not divide is one pool, train.

    `dataset` is the class's name in torchvision.datasets, or CLEVRDistance. Files lie below `root`, where torchvision
    puts them; what is missing is downloaded and checked against torchvision's checksums, where it has them.
    """

    def __init__(self, *, dataset: str, root: str):
        if dataset not in LAYOUTS:
            raise ConfigError(f"data.source.dataset '{dataset}' is not one of: {', '.join(LAYOUTS)}")
        self.dataset = dataset
        self.layout = LAYOUTS[dataset]
        self.torchvision_name = self.layout.dataset or dataset
        self.root = Path(root)
        self.in_chans = self.layout.in_chans
        needs = self.layout.needs
        if needs is not None and find_spec(needs) is None:
            raise ConfigError(f"data.source.dataset {dataset} needs the package {needs}; pip install {needs}")

    def prepare(self) -> None:
        if self._complete():
            return
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f".{self.torchvision_name}.lock"):  # two runs may want the same download
                if not self._complete():
                    self._download()
        except OSError as error:
            raise DataError(f"data.source.root: cannot write to the folder {self.root}: {error.strerror}") from error

    @property
    def _unfinished(self) -> Path:
        """Name a file that exists while a process unpacks, and lists what this process makes."""
        return self.root / f".{self.torchvision_name}.unfinished"

    def _complete(self) -> bool:
        if self._unfinished.exists():
            return False
        try:
            for split in self.layout.splits:
                self._torchvision(split, download=False)
            return True
        except DataError:
            return False

    def _download(self) -> None:
        if self._unfinished.exists():  # a process died while it unpacked
            self._remove_unfinished()
        absent = [folder for folder in self.layout.unpacked if not (self.root / folder).exists()]
        self._unfinished.write_text("\n".join(absent))
        try:
            for split in self.layout.splits:
                self._torchvision(split, download=True)
        except BaseException:
            self._remove_unfinished()
            raise
        self._unfinished.unlink()

    def _remove_unfinished(self) -> None:
        """Remove what was half unpacked or half downloaded, which torchvision would take for complete; complete
        archives stay."""
        for name in self.layout.unchecked:
            if (self.root / name).is_file() and not is_zipfile(self.root / name):
                (self.root / name).unlink()
        for name in self._unfinished.read_text().splitlines():
            if (self.root / name).is_file():
                (self.root / name).unlink()
            shutil.rmtree(self.root / name, ignore_errors=True)
        self._unfinished.unlink()

    def open(self) -> dict[str, Pool]:
        return {split: self._pool(split) for split in ("train", "val", "test") if split in self.layout.splits}

    def _torchvision(self, split: str, *, download: bool) -> Any:
        from torchvision import datasets

        try:
            dataset = getattr(datasets, self.torchvision_name)
            return dataset(str(self.root), **self.layout.splits[split], download=download)
        except Exception as error:  # a download, a checksum or a damaged file: torchvision raises many kinds
            reason = format_error(error)
            raise DataError(
                f"{self.dataset} is not complete in {self.root} and could not be downloaded ({reason}); put its files "
                "there, or point data=folder data.source.root=... at images in train/<class>/*"
            ) from error

    def _pool(self, split: str) -> Pool:
        dataset = self._torchvision(split, download=False)
        if self.dataset == "PCAM":
            pool: Pool = patches(dataset)
        elif self.in_chans is None:
            paths, labels = (self.layout.files or list_files)(dataset)
            targets = OneClass(np.asarray(labels, dtype=np.int64) - self.layout.first_label)
            pool = FilePool.from_names([os.path.relpath(path, self.root) for path in paths], targets, str(self.root))
        else:
            pixels, classes = load_arrays(dataset)
            pool = ArrayPool(pixels, OneClass(classes), f"{self.dataset} {split}")
        if split == "train":
            given = self.layout.class_names or getattr(dataset, "classes", getattr(dataset, "categories", None))
            numbers = range(int(pool.targets.values.max()) + 1)
            self.class_names = [str(name) for name in given or numbers]
        return pool


def load_arrays(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Give pixels (n, H, W) or (n, H, W, C) and classes (n,) of a torchvision data set that is in memory."""
    pixels = np.asarray(dataset.data)
    if not hasattr(dataset, "targets"):  # SVHN: (n, C, H, W), labels
        return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), np.asarray(dataset.labels, dtype=np.int64)
    return pixels, np.asarray(dataset.targets, dtype=np.int64)


def list_files(dataset: Any) -> Files:
    """Give paths and classes (n,) of a torchvision data set that reads files."""
    if hasattr(dataset, "samples"):
        return [path for path, _ in dataset.samples], [label for _, label in dataset.samples]
    if hasattr(dataset, "categories"):  # Caltech-101
        folder = os.path.join(dataset.root, "101_ObjectCategories")
        names = [f"{dataset.categories[k]}/image_{i:04d}.jpg" for k, i in zip(dataset.y, dataset.index, strict=True)]
        return [os.path.join(folder, name) for name in names], dataset.y
    paths, labels = getattr(dataset, "_image_files", None) or dataset._images, dataset._labels
    if type(dataset).__name__ == "SUN397":  # as the disk lists them
        order = sorted(range(len(paths)), key=paths.__getitem__)
        return [paths[i] for i in order], [labels[i] for i in order]
    return paths, labels
