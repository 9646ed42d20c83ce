"""Images in folders: root/train/<class>/*, and where they exist root/val/<class>/* and root/test/<class>/*."""

import hashlib
import os
from pathlib import Path

import numpy as np
from PIL import Image

from vitlab.data.source import Pool
from vitlab.errors import DataError

EXTENSIONS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


class Folder:
    """One class for each folder below train/, in alphabetical order; the other splits hold the same classes or fewer.

    Files below a class folder may lie in folders of their own; hidden ones and other extensions are passed over.
    `in_chans` is None: files may differ, so data.image_mode says what they are converted to.
    """

    in_chans = None

    def __init__(self, *, root: str):
        self.root = Path(root)
        self.class_names: list[str] = []

    def prepare(self) -> None:
        """Nothing to download."""

    def open(self) -> dict[str, Pool]:
        if not self.root.is_dir():
            raise DataError(f"data.source.root: there is no folder {self.root}; give one that holds train/<class>/*")
        if not (self.root / "train").is_dir():
            raise DataError(f"data.source.root: {self.root} has no folder train/; images go to train/<class>/*")
        self.class_names = class_folders(self.root / "train")
        if not self.class_names:
            raise DataError(f"{self.root / 'train'} holds no class folder; images go to train/<class>/*")
        splits = [split for split in ("train", "val", "test") if (self.root / split).is_dir()]
        return {split: self._pool(self.root / split) for split in splits}

    def _pool(self, folder: Path) -> Pool:
        paths: list[str] = []
        targets: list[int] = []
        digest = hashlib.blake2b(digest_size=8)
        for name in class_folders(folder):
            if name not in self.class_names:
                raise DataError(f"{folder / name} is a class that {self.root / 'train'} does not have")
            files = image_files(folder / name)
            if not files:
                raise DataError(f"class folder {folder / name} holds no image ({' '.join(sorted(EXTENSIONS))})")
            for path, size in files:
                digest.update(f"{os.path.relpath(path, self.root)} {size}\n".encode())
            paths += [path for path, _ in files]
            targets += [self.class_names.index(name)] * len(files)
        return FilePool(np.array(paths), np.array(targets, dtype=np.int64), digest.hexdigest())


class FilePool(Pool):
    """Image files: paths (n,) in one block of memory, which workers share."""

    def __init__(self, paths: np.ndarray, targets: np.ndarray, fingerprint: str):
        super().__init__(targets, fingerprint)
        self.paths = paths

    def load(self, i: int) -> Image.Image:
        with Image.open(self.name(i)) as image:
            image.load()
            return image

    def name(self, i: int) -> str:
        return str(self.paths[i])


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def image_files(folder: Path) -> list[tuple[str, int]]:
    """Paths and sizes in bytes of the image files at any depth below `folder`, sorted by path."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or os.path.splitext(name)[1].lower() not in EXTENSIONS:
                continue
            path = os.path.join(parent, name)
            if not os.path.exists(path):
                raise DataError(f"{path} is a link to nothing; mend or remove it")
            found.append((path, os.stat(path).st_size))
    return sorted(found)
