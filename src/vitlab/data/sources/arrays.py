"""Read images from NumPy's files: .npy, mapped into memory rather than read, or .npz.

n images, H W height and width, C channels, K classes
"""

from pathlib import Path
from typing import Any

import numpy as np

from vitlab.data.pools.labels import MOST_CLASSES, check_distinct
from vitlab.data.pools.pool import ArrayPool, Pool, Source, digest_pixels
from vitlab.data.pools.split_names import SPLITS, check_splits
from vitlab.data.targets import Targets, find_stray, make_classes
from vitlab.errors import ConfigError, DataError
from vitlab.machine import physical_memory

LOOKED_AT = 4096  # images of which a fingerprint is made, evenly spaced
CHANNELS = (1, 2, 3, 4)


class Arrays(Source):
    """Pixels (n, H, W) or (n, H, W, C) in uint8 and classes (n,) in whole numbers from 0, or (n, K) in zeros and ones
    where an image may have several.

    `images` names a file for each split, or null. Beside an .npy, `labels` names that of the classes. An .npz holds
    both, as images and labels, or as train_images, train_labels, val_images and so on; one that names the splits so
    brings all that it holds. `class_names` null: the numbers. `in_chans` is known once the files are open.
    """

    def __init__(self, *, images: dict[str, str | None], labels: dict[str, str | None], class_names: list[str] | None):
        self.images = {split: Path(file) for split, file in check_splits(images, "images").items()}
        self.labels = {split: Path(file) for split, file in labels.items() if file is not None}
        for split, file in self.images.items():
            if file.suffix not in (".npy", ".npz"):
                raise ConfigError(f"data.source.images.{split} {file} is neither .npy nor .npz")
            if file.suffix == ".npy" and split not in self.labels:
                raise ConfigError(
                    f"data.source.labels.{split} is missing; set it to the .npy with the classes of {file}"
                )
        check_distinct(class_names)
        self.given_names = class_names

    def open(self) -> dict[str, Pool]:
        pools = {split: pool for split in SPLITS if (pool := self._pool(split)) is not None}
        channels = {split: pool.pixels.shape[3] if pool.pixels.ndim == 4 else 1 for split, pool in pools.items()}
        if len(set(channels.values())) > 1:
            raise DataError(f"data.source.images: the splits differ in channels: {channels}; give them the same")
        self.in_chans = channels["train"]
        self.class_names = self._names([pool.targets.values for pool in pools.values()])
        return dict(pools)

    def _names(self, targets: list[np.ndarray]) -> list[str]:
        """Give the names of the classes; raises DataError for names that do not fit the labels, and labels of different
        forms."""
        widths = {labels.shape[1] if labels.ndim == 2 else None for labels in targets}
        if len(widths) > 1:
            forms = ", ".join(" x ".join(map(str, labels.shape)) for labels in targets)
            raise DataError(
                f"data.source.labels: the splits differ in form: {forms}; give all of them the same columns"
            )
        columns = widths.pop()
        if self.given_names is None:
            return [str(k) for k in range(columns or 1 + max(int(labels.max()) for labels in targets))]
        names = len(self.given_names)
        if columns not in (None, names):
            raise DataError(
                f"data.source.class_names has {names} names, but the labels have {columns} columns; make them equal"
            )
        return self.given_names

    def _pool(self, split: str) -> "ArrayPool | MappedPool | None":
        file = self.images.get(split)
        if file is not None and file.suffix == ".npy":
            pixels, targets = load_array(file), load_array(self.labels[split])
            self._check(pixels, targets, str(file), str(self.labels[split]))
            return MappedPool(file, pixels, make_targets(targets))
        archive = file or self.images["train"]
        if archive.suffix == ".npy":
            return None
        with load_array(archive) as arrays:
            keys = f"{split}_images", f"{split}_labels"
            if keys[0] not in arrays:
                if file is None:
                    return None
                keys = "images", "labels"
            pixels, targets = (unpack_array(arrays, key, archive) for key in keys)
        self._check(pixels, targets, f"{archive}: {keys[0]}", f"{archive}: {keys[1]}")
        return ArrayPool(pixels, make_targets(targets), f"{archive.name} {split}")

    def _check(self, pixels: np.ndarray, targets: np.ndarray, images: str, labels: str) -> None:
        """Raise DataError as `check` does, and for a label that is no class, before anything is made for each class."""
        check_arrays(pixels, targets, images, labels)
        most, limit = MOST_CLASSES, f"{MOST_CLASSES:,} are the most"
        if self.given_names is not None:
            most = len(self.given_names)
            limit = f"data.source.class_names has {most} names"
        if targets.ndim == 1 and (i := find_stray(targets, most)) is not None:
            raise DataError(f"{labels} holds {targets[i]}, for image {i}; classes count from 0, and {limit}")


class MappedPool(Pool):
    """Images of an .npy file, which the workers map, too. The fingerprint is made of the classes, the shape and
    LOOKED_AT images."""

    pixels: np.ndarray

    def __init__(self, file: Path, pixels: np.ndarray, targets: Targets):
        super().__init__(targets, digest_pixels(targets, pixels, LOOKED_AT))
        self.file = file
        self.pixels = pixels

    def load(self, i: int) -> np.ndarray:
        return np.asarray(self.pixels[i])

    def name(self, i: int) -> str:
        return f"{self.file} image {i}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pixels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "pixels": load_array(state["file"])}


def load_array(file: Path) -> Any:
    """Load an array, mapped, or an archive. Raises DataError where there is none."""
    if not file.is_file():
        raise DataError(f"data.source: there is no file {file}")
    try:
        loaded = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # zipfile and numpy raise many kinds
        raise DataError(f"{file} cannot be read as {file.suffix}: {error}") from error
    if isinstance(loaded, np.ndarray) != (file.suffix == ".npy"):
        raise DataError(f"{file} is not a {file.suffix}, but NumPy's other file type; rename it")
    return loaded


def unpack_array(arrays: Any, key: str, archive: Path) -> np.ndarray:
    """Unpack an array of an archive. Raises DataError where there is none, and for one larger than memory: few bytes
    may unpack to any number."""
    if key not in arrays:
        raise DataError(f"{archive} has no array {key}; it has {', '.join(arrays) or 'none'}")
    memory = physical_memory()
    try:
        size = arrays.zip.getinfo(f"{key}.npy").file_size
        if size <= memory:
            array: np.ndarray = arrays[key]
            return array
    except Exception as error:  # zipfile and numpy raise many kinds
        raise DataError(f"{archive} is damaged: {error}") from error
    raise DataError(
        f"{archive}: {key} unpacks to {size:,} bytes, and this machine has {memory:,}; save it as .npy, which is mapped"
    )


def check_arrays(pixels: np.ndarray, targets: np.ndarray, images: str, labels: str) -> None:
    """Raise DataError, saying what would be right, for arrays that are no images and their classes."""
    shape = " x ".join(map(str, pixels.shape))
    if pixels.ndim not in (3, 4) or 0 in pixels.shape[1:]:
        raise DataError(f"{images} has the shape {shape}, but must be (n, H, W) or (n, H, W, C); reshape it")
    if pixels.ndim == 4 and pixels.shape[3] not in CHANNELS and pixels.shape[1] in CHANNELS:
        raise DataError(
            f"{images} has the shape {shape}, which looks like (n, C, H, W); save images.transpose(0, 2, 3, 1)"
        )
    if pixels.dtype != np.uint8:
        right = "save (255 * images).astype('uint8') if they are in [0, 1]"
        raise DataError(f"{images} is {pixels.dtype}, but must be uint8 from 0 to 255; {right}")
    several = targets.ndim == 2 and targets.shape[1] > 1 and targets.dtype.kind in "iub"
    if not several and (targets.dtype.kind not in "iu" or targets.ndim != 1):
        given = f"{targets.dtype} in {targets.ndim} dimension(s)"
        raise DataError(
            f"{labels} is {given}, and takes one whole number for each image, or a row of zeros and ones, one for each "
            "class"
        )
    if len(targets) != len(pixels) or not len(targets):
        raise DataError(f"{labels} has {len(targets)} labels for {len(pixels)} images in {images}; give one for each")
    if several and (odd := targets[(targets < 0) | (targets > 1)]).size:
        raise DataError(f"{labels} holds {odd[0]}; where an image may have several classes, 1 says that it has one")


def make_targets(labels: np.ndarray) -> Targets:
    return make_classes(labels.astype(np.uint8 if labels.ndim == 2 else np.int64))
