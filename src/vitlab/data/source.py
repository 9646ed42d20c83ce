"""What a source of images provides, before any split, order or transform."""

import hashlib
from typing import Protocol

import numpy as np
from PIL import Image
from torch import Tensor


class Pool:
    """Labelled images that can be read in any order; subclasses say how. Workers receive it pickled.

    `targets` (n,) int64; `fingerprint` is a digest of what the pool holds.
    """

    def __init__(self, targets: np.ndarray, fingerprint: str):
        self.targets = targets
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.targets)

    def load(self, i: int) -> Image.Image | Tensor:
        """The i-th image, as a PIL image or a uint8 tensor (C, H, W)."""
        raise NotImplementedError

    def name(self, i: int) -> str:
        """Which file or entry the i-th image is."""
        raise NotImplementedError


class ArrayPool(Pool):
    """Images in memory: pixels (n, H, W) or (n, H, W, C) in uint8, targets (n,) int64; `label` names the set."""

    def __init__(self, pixels: np.ndarray, targets: np.ndarray, label: str):
        digest = hashlib.blake2b(targets.tobytes(), digest_size=8)
        digest.update(np.ascontiguousarray(pixels).data)
        super().__init__(targets, digest.hexdigest())
        self.pixels = pixels
        self.label = label

    def load(self, i: int) -> Image.Image:
        return Image.fromarray(self.pixels[i])

    def name(self, i: int) -> str:
        return f"{self.label} image {i}"


class Source(Protocol):
    """A data set: one pool for each split that it brings, of "train", "val" and "test"; "train" is always there.

    `in_chans` is the number of channels of its images as stored, or None where files may differ. `open` may read an
    index but no image, and raises DataError when something is missing. `prepare` downloads, in one process.
    """

    class_names: list[str]
    in_chans: int | None

    def prepare(self) -> None: ...

    def open(self) -> dict[str, Pool]: ...
