"""The small data sets that torchvision downloads: CIFAR-10 and -100, MNIST, Fashion-MNIST."""

from pathlib import Path

import numpy as np
from filelock import FileLock

from vitlab.data.source import ArrayPool, Pool
from vitlab.errors import DataError


class TorchvisionSource:
    """A torchvision data set with a `train` switch, held in memory: its training pool, and its test pool as test.

    `dataset` is the class's name in torchvision.datasets. Files lie below `root`, where torchvision puts them; what is
    missing is downloaded and checked against torchvision's checksums.
    """

    def __init__(self, *, dataset: str, root: str, in_chans: int):
        self.dataset = dataset
        self.root = Path(root)
        self.in_chans = in_chans
        self.class_names: list[str] = []

    def prepare(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"data.source.root: cannot make the folder {self.root}: {error.strerror}") from error
        with FileLock(self.root / f".{self.dataset}.lock"):  # two runs may want the same download
            for train in (True, False):
                self._torchvision(train=train, download=True)

    def open(self) -> dict[str, Pool]:
        return {split: self._pool(train=split == "train") for split in ("train", "test")}

    def _torchvision(self, *, train: bool, download: bool):
        from torchvision import datasets

        try:
            return getattr(datasets, self.dataset)(str(self.root), train=train, download=download)
        except Exception as error:  # a download, a checksum or a damaged file: torchvision raises many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{self.dataset} is not complete in {self.root} and could not be downloaded ({reason}); put its files "
                "there, or point data=folder data.source.root=... at images in train/<class>/*"
            ) from error

    def _pool(self, *, train: bool) -> Pool:
        dataset = self._torchvision(train=train, download=False)
        pixels = np.asarray(dataset.data)  # (n, H, W, 3) or (n, H, W)
        targets = np.asarray(dataset.targets, dtype=np.int64)
        self.class_names = [str(name) for name in dataset.classes]
        return ArrayPool(pixels, targets, f"{self.dataset} {'train' if train else 'test'}")
