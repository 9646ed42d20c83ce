"""Where a run keeps images so that they need not be read and decoded again in each epoch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.data.cache.decoded import decoded
from vitlab.data.cache.device import CropBatch, CropsOnly, DeviceImages, cut_out, held_on, holds_pixels
from vitlab.data.cache.encoded import encoded
from vitlab.data.pools.pool import Pool


def uncached(pool: Pool, root: Path, **settings: Any) -> Pool:
    """Read images as the source gives them, each time anew."""
    return pool


def small_files(pool: Pool, root: Path, *, size: int, image_mode: str | None, in_chans: int, num_workers: int) -> Pool:
    """Image files whose shorter side has at most `size` pixels."""
    return encoded(pool, root, shorter_side=size, image_mode=image_mode, num_workers=num_workers)


def held_pixels(pool: Pool, root: Path, **settings: Any) -> Pool:
    """Pixels of one size: the source's own, or those of a decoded cache."""
    return pool if holds_pixels(pool, settings["in_chans"]) else decoded(pool, root, **settings)


CACHES: dict[str, Callable[..., Pool]] = {
    "none": uncached,
    "encoded": small_files,
    "decoded": decoded,
    "device": held_pixels,
}

__all__ = [
    "CACHES",
    "CropBatch",
    "CropsOnly",
    "DeviceImages",
    "cut_out",
    "decoded",
    "encoded",
    "held_on",
    "holds_pixels",
]
