"""Choose the cache that training images come from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.data.cache.decoded import cache_decoded
from vitlab.data.cache.device import holds_pixels
from vitlab.data.cache.encoded import cache_encoded
from vitlab.data.pools.pool import Pool
from vitlab.errors import ConfigError
from vitlab.ranges import Pixels


class Cache:
    """A `kind` of CACHES below the folder `root`; images are `size` pixels in it: of the shorter side (encoded), of
    both sides (decoded, device). Raises ConfigError for another kind."""

    def __init__(self, *, kind: str, root: str, size: Pixels):
        if kind not in CACHES:
            raise ConfigError(f"data.cache.kind '{kind}' is not one of: {', '.join(CACHES)}")
        self.kind = kind
        self.root = Path(root)
        self.size = size

    @property
    def on_device(self) -> bool:
        return self.kind == "device"

    def cache_pool(self, pool: Pool, *, mode: str | None, in_chans: int, num_workers: int) -> Pool:
        """Give the same pool out of the cache, which that many processes build if it is not there."""
        settings = {"size": self.size, "image_mode": mode, "in_chans": in_chans, "num_workers": num_workers}
        return CACHES[self.kind](pool, self.root, **settings)


def skip_cache(pool: Pool, root: Path, **settings: Any) -> Pool:
    """Read images from the source, anew each time."""
    return pool


def cache_small_files(
    pool: Pool, root: Path, *, size: int, image_mode: str | None, in_chans: int, num_workers: int
) -> Pool:
    """Read image files whose shorter side has at most `size` pixels."""
    return cache_encoded(pool, root, shorter_side=size, image_mode=image_mode, num_workers=num_workers)


def cache_pixels(pool: Pool, root: Path, **settings: Any) -> Pool:
    """Read pixels of one size: the source's own, or those of a decoded cache."""
    return pool if holds_pixels(pool, settings["in_chans"]) else cache_decoded(pool, root, **settings)


CACHES: dict[str, Callable[..., Pool]] = {
    "none": skip_cache,
    "encoded": cache_small_files,
    "decoded": cache_decoded,
    "device": cache_pixels,
}
