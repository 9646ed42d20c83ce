"""Keep images as small JPEGs on the disk: fewer bytes to read and fewer pixels to decode, for crops that need no
more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab.data.cache.building import build_once
from vitlab.data.cache.reencoding import QUALITY, SUBSAMPLING, Reencoding, refuse_channels
from vitlab.data.pools.pool import Pool, Stored
from vitlab.data.shards.index import VERSION
from vitlab.data.shards.writing import MEGABYTE, write_shards
from vitlab.data.sources.shards import Shards

SHARD_BYTES = 256 * MEGABYTE
SPLIT = "images"


def cache_encoded(pool: Pool, folder: Path, *, shorter_side: int, image_mode: str | None, num_workers: int) -> Pool:
    """Give the same images, shrunk to `shorter_side` where their shorter side is longer, from a cache below `folder`
    that is built first if it is not there. Raises DataError for pixels in more channels than a file holds, StorageError
    when the disk is full."""
    reencoding = Reencoding(image_mode, shorter_side=shorter_side)
    key = {
        "cache": "encoded",
        "version": VERSION,
        "fingerprint": pool.fingerprint,
        "num_samples": len(pool),
        "shorter_side": shorter_side,
        "image_mode": image_mode,
        "jpeg": [QUALITY, SUBSAMPLING],
    }

    def build(place: Path) -> None:
        refuse_channels(pool)
        write_shards(
            {SPLIT: pool},
            [],
            place,
            reencoding,
            shard_bytes=SHARD_BYTES,
            num_workers=num_workers,
            on_bad_image="record",
        )

    place = build_once(Path(folder), key, build)
    return EncodedPool(pool, Shards(root=str(place)).open()[SPLIT])


class EncodedPool(Pool):
    """The images of a pool, read from the shards that they were copied to; names, classes and fingerprint are the
    pool's own. An image that could not be read when it was copied raises DamagedImage, with the reason."""

    def __init__(self, pool: Pool, copy: Pool):
        super().__init__(pool.targets, pool.fingerprint)
        self.pool, self.copy = pool, copy
        self.groups = pool.groups  # the order is the same with and without a cache

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedPool, (self.pool, self.copy)

    def load(self, i: int) -> Stored:
        return self.copy.load(i)

    def load_many(self, indices: Sequence[int]) -> list[Stored | Exception]:
        return self.copy.load_many(indices)

    def size(self, i: int) -> tuple[int, int] | None:
        return self.copy.size(i) or self.pool.size(i)

    def name(self, i: int) -> str:
        return self.pool.name(i)
