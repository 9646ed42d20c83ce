"""Describe what a source provides, before any split, order or transform.

n images, H W image height and width, C channels
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitlab.data.targets import Targets, Texts

Stored = bytes | np.ndarray  # an image file's content, or pixels (H, W) or (H, W, C) in uint8


class Pool:
    """Labelled images that can be read in any order; subclasses say how. Workers receive it pickled.

    `targets` are of one kind in all pools of a source. `fingerprint` is a digest of what the pool holds. `groups` (n,)
    int64 is the number of each image's shard, for an order that reads few shards at a time; None where any order costs
    the same. `pixels` (n, S, S) or (n, S, S, C) holds all images, where they are in memory or mapped and of one size.
    `unreadable` gives the reasons of images that are known to be unreadable. A pool that composes its images anew in
    every epoch takes `draws` random numbers for each; 0: an image is always the same. `computed`: images are not
    stored, but computed when they are loaded.
    """

    groups: np.ndarray | None = None
    pixels: np.ndarray | None = None
    unreadable: Mapping[int, str] = {}
    draws = 0
    computed = False
    things = "images"  # what its samples are called in messages

    def __init__(self, targets: Targets, fingerprint: str):
        self.targets = targets
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.targets)

    def load(self, i: int) -> Stored:
        """Read the i-th image as it is stored. Raises one of `decoding.DAMAGE` for one that cannot be read."""
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
        """Compose the images of a batch from random numbers (B, draws), uniform in [0, 1)."""
        raise NotImplementedError

    def size(self, i: int) -> tuple[int, int] | None:
        """Return the height and width of the i-th image before a cache made it smaller; None where none did."""
        return None

    def name(self, i: int) -> str:
        """Return the name of the i-th image's file or entry."""
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
        pixels: np.ndarray = self.pixels[i]
        return pixels

    def name(self, i: int) -> str:
        return f"{self.label} image {i}"


class TextPool(Pool):
    """Texts to `read`, and a text to be written for each."""

    things = "texts"

    def __init__(self, read: Texts, targets: Texts):
        digest = hashlib.blake2b(read.tobytes() + b"\0" + targets.tobytes(), digest_size=8)
        super().__init__(targets, digest.hexdigest())
        self.read = read

    def name(self, i: int) -> str:
        return str(self.read.values[i])


def digest_pixels(targets: Targets, pixels: np.ndarray, num_images: int) -> str:
    """Return a fingerprint of targets, the shape of pixels (n, ...) and so many images of them, evenly spaced."""
    digest = hashlib.blake2b(targets.tobytes() + str(pixels.shape).encode(), digest_size=8)
    for i in np.unique(np.linspace(0, len(pixels) - 1, num_images).astype(int)):
        digest.update(np.ascontiguousarray(pixels[i]).data)
    return digest.hexdigest()


class Source:
    """A data set: one pool for each of its splits, of "train", "val" and "test"; "train" is always among them.

    `class_names` is empty where targets are not classes. `in_chans` is the number of channels of its images as stored,
    or None where files may differ.
    """

    class_names: list[str] = []  # noqa: RUF012 - replaced, never changed
    in_chans: int | None = None

    def prepare(self) -> None:
        """Download what is missing, in one process; most sources have nothing to download."""

    def open(self) -> dict[str, Pool]:
        """Return the pools. It may read an index, but no image. Raises DataError when something is missing."""
        raise NotImplementedError


class OpenedSource:
    """A source that is prepared and opened once, at the first call of `open`; all else is the source's own."""

    def __init__(self, source: Source):
        self.source = source
        self.pools: dict[str, Pool] | None = None

    def prepare(self) -> None:
        """Nothing: `open` prepares."""

    def open(self) -> dict[str, Pool]:
        if self.pools is None:
            self.source.prepare()
            self.pools = self.source.open()
        return self.pools

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # of a copy that has none yet
            raise AttributeError(name)
        return getattr(self.source, name)
