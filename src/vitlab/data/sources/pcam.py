"""PatchCamelyon's patches, in HDF5 (Veeling et al., 2018, arXiv:1806.03962): 7 GB, which are not held in memory.

n patches
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.data.pools.pool import Pool, digest_pixels
from vitlab.data.targets import OneClass, Targets
from vitlab.errors import DataError

PATCHES = tuple(
    f"pcam/camelyonpatch_level_2_split_{split}_{what}.h5" for split in ("train", "valid", "test") for what in "xy"
)
LOOKED_AT = 64  # patches of which a fingerprint is made, evenly spaced


class PatchPool(Pool):
    """Pixels (n, H, W, C) in uint8, the array x of an HDF5 file. Each process opens the file for itself: its library
    may not be used on both sides of a fork. The fingerprint is made of the classes, the shape and LOOKED_AT patches."""

    def __init__(self, file: Path, targets: Targets):
        self.file = file
        self.opened: tuple[int, Any] = (0, None)  # the process that opened the file, and x
        super().__init__(targets, digest_pixels(targets, self._pixels(), LOOKED_AT))

    def _pixels(self) -> Any:
        if self.opened[0] != os.getpid():
            import h5py

            self.opened = os.getpid(), h5py.File(self.file, "r")["x"]
        return self.opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "opened": (0, None)}

    def load(self, i: int) -> np.ndarray:
        pixels: np.ndarray = self._pixels()[int(i)]
        return pixels

    def name(self, i: int) -> str:
        return f"{self.file} image {i}"


def patches(dataset: Any) -> PatchPool:
    """Read the patches that torchvision's PCAM has downloaded. Raises DataError for a damaged file."""
    import h5py

    files = {what: dataset._base_folder / name for what, (name, *_) in dataset._FILES[dataset._split].items()}
    try:
        with h5py.File(files["targets"], "r") as file:
            targets = OneClass(np.asarray(file["y"]).reshape(-1).astype(np.int64))  # (n, 1, 1, 1) -> (n,)
        return PatchPool(files["images"], targets)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{files['images']}, or its y, is damaged: {error}; remove both, and they are downloaded again"
        ) from error
