"""Keep images as pixels on the disk, all of one size, with nothing left to decode.

n images, S their height and width in the cache, C channels
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from vitlab.atomic_files import format_json, write_atomically, write_whole
from vitlab.data.cache.building import FULL, build_once
from vitlab.data.images.decoding import DamagedImage, open_image
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.pools.pool import Pool, Stored
from vitlab.errors import DataError, StorageError

VERSION = 1
PIXELS, SIZES, UNREADABLE, DONE = "pixels.bin", "sizes.npy", "unreadable.json", "done.jsonl"
AT_ONCE = 128  # images between two marks of what is done
GIGABYTE = 10**9


def cache_decoded(
    pool: Pool, folder: Path, *, size: int, image_mode: str | None, in_chans: int, num_workers: int
) -> "DecodedPool":
    """Give the same images, each resized whole to `size` x `size` pixels (bicubic, antialiased) in `in_chans` channels,
    from a cache below `folder` that is built first if it is not there. Raises DataError for an image with another
    number of channels, StorageError when the disk has no room for all."""
    key = {
        "cache": "decoded",
        "version": VERSION,
        "fingerprint": pool.fingerprint,
        "num_samples": len(pool),
        "size": size,
        "image_mode": image_mode,
        "in_chans": in_chans,
    }

    def build(place: Path) -> None:
        decode_all(ChunkDecoder(pool, place / PIXELS, size, image_mode, in_chans), place, num_workers)

    return DecodedPool(pool, build_once(Path(folder), key, build), size, in_chans)


class DecodedPool(Pool):
    """The images of a pool as pixels (S, S, C), or (S, S) if C is 1: read-only views into one file, which all processes
    of a machine share in memory as far as there is room. Pickled, it is the path of that file. An image that could not
    be read when the cache was built raises DamagedImage, with the reason."""

    def __init__(self, pool: Pool, place: Path, size: int, in_chans: int):
        super().__init__(pool.targets, pool.fingerprint)
        self.groups = pool.groups  # the order is the same with and without a cache
        self.pool, self.place, self.side, self.in_chans = pool, place, size, in_chans
        shape = (len(pool), size, size) + ((in_chans,) if in_chans > 1 else ())
        try:
            found = (place / PIXELS).stat().st_size
            if found != np.prod(shape, dtype=np.int64):
                raise ValueError(f"it has {found:,} bytes")
            self.pixels: np.ndarray = np.memmap(place / PIXELS, np.uint8, "r", shape=shape).view(np.ndarray)
            self.sizes: np.ndarray = np.load(place / SIZES, mmap_mode="r", allow_pickle=False).view(np.ndarray)
            reasons = json.loads((place / UNREADABLE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{place} is a damaged cache ({error}); remove it, and it is built again") from error
        self.unreadable = {int(i): reason for i, reason in reasons.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return DecodedPool, (self.pool, self.place, self.side, self.in_chans)

    def load(self, i: int) -> np.ndarray:
        if i in self.unreadable:
            raise DamagedImage(self.unreadable[i])
        return cast(np.ndarray, self.pixels[i])

    def size(self, i: int) -> tuple[int, int] | None:
        height, width = (int(side) for side in self.sizes[i])
        return None if height == width == self.side else (height, width)

    def name(self, i: int) -> str:
        return self.pool.name(i)


# -- building


def decode_all(decoder: "ChunkDecoder", place: Path, num_workers: int) -> None:
    """Fill the file of pixels, and write the sizes (n, 2) that the images had. Chunks that an earlier call finished
    (marked once they were on the disk) are not done again."""
    total = len(decoder.pool)
    done = read_marked_chunks(place / DONE) if reserve_file(decoder.path, total * decoder.image_bytes) else {}
    write_whole(place / DONE, b"".join(format_chunk(chunk) for chunk in done.values()))  # without a line that broke off
    pieces = [piece for piece in cut(total, AT_ONCE) if piece.start not in done]
    before = total - sum(len(piece) for piece in pieces)
    title = f"pixels → {place}"
    with open(place / DONE, "ab") as file:
        for chunk in map_in_order(decoder, pieces, done=before, title=title, unit="images", num_workers=num_workers):
            done[chunk["start"]] = chunk
            file.write(format_chunk(chunk))
            file.flush()
            os.fsync(file.fileno())
    sizes = np.zeros((total, 2), dtype=np.int32)
    unreadable: dict[str, str] = {}
    for start in sorted(done):
        sizes[start : start + len(done[start]["sizes"])] = done[start]["sizes"]
        unreadable |= done[start]["unreadable"]
    with write_atomically(place / SIZES) as temporary, open(temporary, "wb") as sizes_file:
        np.save(sizes_file, sizes)
    write_whole(place / UNREADABLE, format_json(unreadable))
    (place / DONE).unlink()


def read_marked_chunks(path: Path) -> dict[int, dict[str, Any]]:
    """Read which chunks are marked as done, by their first image."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    chunks = [json.loads(line) for line in lines]
    return {chunk["start"]: chunk for chunk in chunks}


def format_chunk(chunk: dict[str, Any]) -> bytes:
    return json.dumps(chunk).encode() + b"\n"


def reserve_file(path: Path, needed: int) -> bool:
    """Make a file of `needed` bytes, all reserved on the disk; return whether it was there already. Raises
    StorageError."""
    if path.is_file() and path.stat().st_size == needed:
        return True
    free = shutil.disk_usage(path.parent).free
    try:
        if free < needed:
            raise OSError(FULL[0], os.strerror(FULL[0]))
        with open(path, "wb") as file:
            if needed and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, needed)
            file.truncate(needed)
    except OSError as error:
        if error.errno not in FULL:
            raise
        path.unlink(missing_ok=True)
        raise StorageError(
            f"the decoded cache needs {needed / GIGABYTE:,.2f} GB in {path.parent.parent}, where "
            f"{free / GIGABYTE:,.2f} GB are free; free some space, set data.cache.root to another disk, or use "
            "data.cache.kind=encoded"
        ) from error
    return False


@dataclass
class ChunkDecoder:
    """Image numbers -> what is to be known of them: `start`, the `sizes` (height, width) they had, and why some are
    `unreadable`. Their pixels are then in the file at `path`, on the disk."""

    pool: Pool
    path: Path
    size: int
    image_mode: str | None
    in_chans: int

    @property
    def image_bytes(self) -> int:
        return self.size * self.size * self.in_chans

    def __call__(self, numbers: range) -> dict[str, Any]:
        block = np.zeros((len(numbers), self.size, self.size, self.in_chans), dtype=np.uint8)
        sizes, unreadable = [(self.size, self.size)] * len(numbers), {}
        for k, stored in enumerate(self.pool.load_many(numbers)):
            i = numbers[k]
            try:
                block[k], sizes[k] = self.resize(stored, i)
                sizes[k] = self.pool.size(i) or sizes[k]
            except (OSError, ValueError) as error:
                unreadable[str(i)] = str(error) or type(error).__name__
        self.write(block, numbers.start * self.image_bytes)
        return {"start": numbers.start, "sizes": sizes, "unreadable": unreadable}

    def resize(self, stored: Stored | Exception, i: int) -> tuple[np.ndarray, tuple[int, int]]:
        """Give pixels (S, S, C), and the (height, width) of the image. Raises DamagedImage, and DataError for a wrong
        C."""
        if isinstance(stored, Exception):
            raise stored
        picture = open_image(stored, self.image_mode)
        pixels = np.asarray(picture.pixels((2 * self.size, 2 * self.size))[0])
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        if pixels.shape[2] != self.in_chans:
            raise DataError(
                f"{self.pool.name(i)} has {pixels.shape[2]} channels, but data.in_chans is {self.in_chans}; "
                "set data.images.mode (L: 1 channel, RGB: 3) to convert every image"
            )
        if pixels.shape[:2] != (self.size, self.size):
            pixels = resize(pixels, self.size)
        return pixels, picture.size

    def write(self, block: np.ndarray, offset: int) -> None:
        """Write without a memory map, where a full disk would end the process without a word."""
        content = memoryview(block.reshape(-1))  # type: ignore[arg-type]  # an array is a buffer
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                while content:
                    written = os.pwrite(descriptor, content, offset)
                    content, offset = content[written:], offset + written
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize. (H, W, C) -> (size, size, C)."""
    if pixels.shape[2] == 3:
        return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC))
    channels = [Image.fromarray(np.ascontiguousarray(channel)) for channel in np.moveaxis(pixels, 2, 0)]
    return np.stack([np.asarray(c.resize((size, size), Image.Resampling.BICUBIC)) for c in channels], axis=2)
