"""Describe what a source of images provides, before any split, order or transform.

n images, H W image height and width, C channels
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from vitlab.data.targets import Targets, Texts

Stored = bytes | np.ndarray  # an image file's content, or pixels (H, W) or (H, W, C) in uint8


class Pool:
    """Labelled images that can be read in any order; subclasses say how. Workers receive it pickled.

    `targets` are of one kind in all pools of a source. `fingerprint` is a digest of what the pool holds. `groups` (n,)
    int64 numbers the shard that each image lies in, for an order that reads few shards at a time; None where any order
    costs the same. `pixels` (n, S, S) or (n, S, S, C) are those of all images, where they are at hand and of one size.
    `unreadable` says why images are known not to be readable. A pool that makes its images anew in every epoch makes
    each of so many `draws`; 0: an image is always the same. `computed`: images lie nowhere, and are made when they are
    asked for.
    """

    groups: np.ndarray | None = None
    pixels: np.ndarray | None = None
    unreadable: Mapping[int, str] = {}
    draws = 0
    computed = False
    things = "images"  # what is in it, for its user

    def __init__(self, targets: Targets, fingerprint: str):
        self.targets = targets
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.targets)

    def load(self, i: int) -> Stored:
        """Read the i-th image as it is stored. An exception that `decoding.DAMAGE` lists means that it cannot be
        read."""
        raise NotImplementedError

    def load_many(self, indices: Sequence[int]) -> list[Stored | Exception]:
        """Read the images of a batch, together where that is faster; an exception stands for one that cannot be
        read."""
        stored: list[Stored | Exception] = []
        for i in indices:
            try:
                stored.append(self.load(i))
            except (OSError, ValueError) as error:
                stored.append(error)
        return stored

    def compose(self, indices: Sequence[int], numbers: np.ndarray) -> list[Stored | Exception]:
        """The images of a batch, of numbers (B, draws) that are uniform in [0, 1)."""
        raise NotImplementedError

    def size(self, i: int) -> tuple[int, int] | None:
        """Give the height and width that the i-th image had before a cache made it smaller; None where none did."""
        return None

    def name(self, i: int) -> str:
        """Name the file or entry of the i-th image."""
        raise NotImplementedError


class ArrayPool(Pool):
    """Images in memory: pixels (n, H, W) or (n, H, W, C) in uint8; `label` names the set."""

    pixels: np.ndarray

    def __init__(self, pixels: np.ndarray, targets: Targets, label: str):
        digest = hashlib.blake2b(targets.tobytes(), digest_size=8)
        digest.update(np.ascontiguousarray(pixels).data)
        super().__init__(targets, digest.hexdigest())
        self.pixels = pixels
        self.label = label

    def load(self, i: int) -> np.ndarray:
        return self.pixels[i]

    def name(self, i: int) -> str:
        return f"{self.label} image {i}"


class TextPool(Pool):
    """Texts to `read`, and a text of each that is to be written."""

    things = "texts"

    def __init__(self, read: Texts, targets: Texts):
        digest = hashlib.blake2b(read.tobytes() + b"\0" + targets.tobytes(), digest_size=8)
        super().__init__(targets, digest.hexdigest())
        self.read = read

    def name(self, i: int) -> str:
        return str(self.read.values[i])


class Source(Protocol):
    """A data set: one pool for each split that it brings, of "train", "val" and "test"; "train" is always there.

    `class_names` is empty where targets are no classes. `in_chans` is the number of channels of its images as stored,
    or None where files may differ. `open` may read an index but no image, and raises DataError when something is
    missing. `prepare` downloads, in one process.
    """

    class_names: list[str]
    in_chans: int | None

    def prepare(self) -> None: ...

    def open(self) -> dict[str, Pool]: ...
