"""Look through the images of a data set: repeated content, sizes and modes, channel statistics, damage.

n images, C channels, H W image height and width
"""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import NamedTuple, cast

import numpy as np
from PIL import Image

from vitlab.data.images.crop import Crop
from vitlab.data.images.decoding import DAMAGE, MODES, open_image
from vitlab.data.images.moments import compute_moments
from vitlab.data.loading.dataset import ImageSplit, crop_for_evaluation
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import Pool, Stored

UNKNOWN = np.uint64(0)  # the digest of what could not be read

# what `overlap` does at most, so that it delays no start
MOST_BYTES = 2**30  # pixels held in memory
MOST_FILES = 20_000
MOST_SECONDS = 2.0  # with files

Place = tuple[str, int]  # a split, and the image's place in it


def digest(stored: Stored) -> np.uint64:
    """Hash a file's bytes, or an array's shape and values, to 64 bits of BLAKE2b."""
    hasher = hashlib.blake2b(digest_size=8)
    if isinstance(stored, np.ndarray):
        hasher.update(repr(stored.shape).encode())
        hasher.update(np.ascontiguousarray(stored).data)
    else:
        hasher.update(stored)
    return np.uint64(int.from_bytes(hasher.digest(), "big"))


def group_equal(digests: Mapping[str, np.ndarray]) -> list[list[Place]]:
    """Group images of equal content by their digests (n,), in the order of the splits."""
    everything = np.concatenate(list(digests.values()))
    order = np.argsort(everything, kind="stable")
    begins = np.flatnonzero(np.diff(everything[order], prepend=everything[order[:1]] + np.uint64(1)))
    lengths = np.diff(begins, append=len(order))
    firsts = np.cumsum([0, *map(len, digests.values())])  # where each split begins
    names, groups = list(digests), []
    for begin, length in zip(begins[lengths > 1], lengths[lengths > 1], strict=True):
        members = order[begin : begin + length]
        if everything[members[0]] != UNKNOWN:
            splits = np.searchsorted(firsts, members, side="right") - 1
            groups.append([(names[s], int(m - firsts[s])) for s, m in zip(splits, members, strict=True)])
    return sorted(groups, key=lambda group: (names.index(group[0][0]), group[0][1]))


# -- the same image in two splits


class Overlap(NamedTuple):
    """`groups` of equal images that lie in more than one split, out of `num_images`; `unchecked` says why nobody
    looked."""

    groups: list[list[Place]]
    num_images: int
    unchecked: str = ""

    def counts(self) -> dict[tuple[str, str], int]:
        """Count for each two splits, the earlier one first, how many images of the later one are also in the
        earlier."""
        counts: dict[tuple[str, str], int] = {}
        for group in self.groups:
            splits = [split for split, _ in group]
            for k, later in enumerate(splits):
                for earlier in dict.fromkeys(s for s in splits[:k] if s != later):
                    counts[earlier, later] = counts.get((earlier, later), 0) + 1
        return counts


def find_shared(groups: Iterable[list[Place]]) -> list[list[Place]]:
    """Keep the groups that lie in more than one split."""
    return [group for group in groups if len({split for split, _ in group}) > 1]


def overlap(splits: Mapping[str, ImageSplit], seconds: float = MOST_SECONDS) -> Overlap:
    """Find equal images in different splits, if that takes little time: pixels in memory, or few files.

    Most images are distinguished by the sum of their pixels, or the length of their file; only the others are read.
    """
    count = sum(split.targets.num_images for split in splits.values())
    deadline = time.monotonic() + seconds
    pools = {id(split.pool): split.pool for split in splits.values()}
    if reason := find_obstacle(list(pools.values())):
        return Overlap([], count, reason)
    keys = {}
    for place, pool in pools.items():
        found = quick_keys(pool, deadline)
        if found is None:
            return Overlap([], count, f"{count:,} files were not compared within {seconds:g} s")
        keys[place] = found
    seen = {name: keys[id(split.pool)][split.indices] for name, split in splits.items()}
    values, times = np.unique(np.concatenate([np.unique(key) for key in seen.values()]), return_counts=True)
    digests = {}
    for name, split in splits.items():
        digests[name] = np.full(len(split), UNKNOWN)
        for index in np.flatnonzero(np.isin(seen[name], values[times > 1])):
            if split.pool.pixels is None and time.monotonic() > deadline:
                return Overlap([], count, f"{count:,} files were not compared within {seconds:g} s")
            digests[name][index] = digest_image(split.pool, int(split.indices[index]))
    return Overlap(find_shared(group_equal(digests)), count)


def find_obstacle(pools: list[Pool]) -> str:
    """Say why these pools are not compared; empty if they are."""
    if any(pool.computed for pool in pools):
        return "the images are computed when they are asked for"
    if any(pool.pixels is None and not isinstance(pool, FilePool) for pool in pools):
        return "the images lie in archives or at a remote place"
    files = sum(pool.targets.num_images for pool in pools if pool.pixels is None)
    size = sum(pool.pixels.nbytes for pool in pools if pool.pixels is not None)
    if files > MOST_FILES:
        return f"{files:,} files would delay the start"
    return f"{size / 2**30:.1f} GiB of pixels would delay the start" if size > MOST_BYTES else ""


def quick_keys(pool: Pool, deadline: float) -> np.ndarray | None:
    """Give numbers (n,) uint64 that equal images share and most others do not; None once time is up."""
    if pool.pixels is not None:
        values = np.ascontiguousarray(pool.pixels).reshape(len(pool), -1)
        width = next(width for width in (8, 4, 2, 1) if values.shape[1] % width == 0)
        return cast(np.ndarray, values.view(f"u{width}").sum(axis=1, dtype=np.uint64))
    keys = np.zeros(len(pool), np.uint64)
    for i in range(len(pool)):
        if time.monotonic() > deadline:
            return None
        try:
            keys[i] = os.stat(pool.name(i)).st_size
        except DAMAGE:
            keys[i] = UNKNOWN  # it is met again, where it can be named
    return keys


def digest_image(pool: Pool, i: int) -> np.uint64:
    try:
        return digest(pool.load(i))
    except DAMAGE:
        return UNKNOWN


# -- every image, looked at once


class Findings(NamedTuple):
    """What some images of a split are: `digests` (n,) uint64, `sizes` (n, 2) height and width, 0 where unknown, and
    Pillow's names of their `modes`; reasons why some are `unreadable`, and `moments` (3, C) int64 over the others: the
    number of pixels, the sum of their values, and of the squares.
    """

    digests: np.ndarray
    sizes: np.ndarray
    modes: list[str]
    unreadable: dict[int, str]
    moments: np.ndarray


def examine_images(split: ImageSplit, crop: Crop, piece: range) -> Findings:
    """Examine the images at these places of a split; their moments are taken as seen through `crop`."""
    digests, sizes = np.full(len(piece), UNKNOWN), np.zeros((len(piece), 2), np.int64)
    modes, unreadable = ["?"] * len(piece), {}
    moments = np.zeros((3, split.in_chans), np.int64)
    positions = [int(split.indices[index]) for index in piece]
    for k, stored in enumerate(split.pool.load_many(positions)):
        try:
            if isinstance(stored, Exception):
                raise stored
            digests[k] = digest(stored)
            sizes[k] = split.pool.size(positions[k]) or open_image(stored, split.image_mode).size
            modes[k] = get_mode(stored)
            image = crop_for_evaluation(stored, crop, split.image_mode)
            if len(image) != split.in_chans:
                raise ValueError(f"it has {len(image)} channels, but data.in_chans is {split.in_chans}")
            moments += compute_moments(image)
        except DAMAGE as error:
            unreadable[piece[k]] = str(error) or type(error).__name__
    return Findings(digests, sizes, modes, unreadable, moments)


def join_findings(findings: list[Findings]) -> Findings:
    """Join the findings of pieces that follow each other."""
    return Findings(
        digests=np.concatenate([f.digests for f in findings]),
        sizes=np.concatenate([f.sizes for f in findings]),
        modes=[mode for f in findings for mode in f.modes],
        unreadable={place: reason for f in findings for place, reason in f.unreadable.items()},
        moments=np.sum([f.moments for f in findings], axis=0),
    )


def get_mode(stored: Stored) -> str:
    """Give Pillow's name for how an image is stored."""
    if isinstance(stored, np.ndarray):
        channels = stored.shape[2] if stored.ndim == 3 else 1
        return MODES.get(channels, f"{channels} channels")
    return Image.open(BytesIO(stored)).mode
