"""Read images to the pixels that `vitlab predict` gives its model, exactly.

B images, C channels, H W image height and width, S image_size
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitlab_runtime.errors import ImageError

MOST_PIXELS = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's bound: more is taken for a decompression bomb
MOST_BYTES = 2**30  # of a file
MOST_AROUND = 64  # times the area of a crop that an image is resized to, to cut the crop out
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's names for numbers of channels


@dataclass(frozen=True)
class Preprocessing:
    """How images become what the model takes: preprocessing.json of a bundle."""

    mode: str | None
    channels: int
    image_size: int
    resize_size: int | None
    interpolation: str
    mean: list[float]
    std: list[float]

    def load(self, image: Any) -> np.ndarray:
        """Read an image: a path, the bytes of a file, a Pillow image or a uint8 array (H, W) or (H, W, C).

        -> uint8 (C, S, S). Raises ImageError.
        """
        name = format_name(image) if isinstance(image, str | os.PathLike) else type(image).__name__
        try:
            decoded = decode(image, self.mode or MODES.get(self.channels))
            pixels = np.atleast_3d(np.asarray(self.crop(decoded))).transpose(2, 0, 1)
        except Exception as error:  # whatever a decoder raises for a file's content: the image cannot be read
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ImageError(f"cannot read {name}: {reason}") from error
        if len(pixels) != self.channels:
            raise ImageError(f"{name} has {len(pixels)} channel(s), but the model takes {self.channels}")
        return pixels

    def crop(self, image: Image.Image) -> Image.Image:
        """Resize all of an image; or resize its shorter side, and cut out the centre. -> (S, S)"""
        S, (W, H) = self.image_size, image.size
        shorter, size = min(H, W), self.resize_size
        width, height = (S, S) if size is None else (size * W // shorter, size * H // shorter)
        left, top = round((width - S) / 2), round((height - S) / 2)
        resample = Image.Resampling[self.interpolation.upper()]
        if width * height > MOST_AROUND * S * S:  # a long strip, of which only the middle is wanted
            box = (left * W / width, top * H / height, (left + S) * W / width, (top + S) * H / height)
            return image.resize((S, S), resample, box=box)
        return image.resize((width, height), resample).crop((left, top, left + S, top + S))

    def normalize(self, pixels: np.ndarray) -> np.ndarray:
        """Scale to [0, 1], subtract the mean and divide by the standard deviation. (B, C, S, S) -> float32"""
        mean, std = (np.array(values, np.float32)[:, None, None] for values in (self.mean, self.std))
        return (pixels.astype(np.float32) / np.float32(255) - mean) / std


def format_name(path: str | os.PathLike[str]) -> str:
    """Return a path as text; bytes that are not UTF-8 become \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def decode(image: Any, mode: str | None) -> Image.Image:
    """Decode an image, upright and in 8 bits; `mode` is Pillow's name for its colours, None: as stored."""
    if isinstance(image, Image.Image):
        return convert_mode(ImageOps.exif_transpose(image), mode)
    if isinstance(image, np.ndarray):
        plain = image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
        if image.dtype != np.uint8 or image.size == 0 or image.ndim not in (2, 3):
            raise ValueError(f"{image.dtype} {image.shape} is not uint8 (H, W) or (H, W, C)")
        return convert_mode(Image.fromarray(plain), mode)
    content = read_file(image) if isinstance(image, str | os.PathLike) else bytes(memoryview(image))
    try:
        opened = Image.open(BytesIO(content))
    except UnidentifiedImageError as error:
        raise ValueError("no image that Pillow knows") from error
    if opened.width * opened.height > MOST_PIXELS:
        raise ValueError(f"{opened.width}x{opened.height} pixels are more than the limit of {MOST_PIXELS:,}")
    opened.load()
    if content.startswith(b"\xff\xd8\xff"):
        opened.info.pop("xmp", None)  # of a JPEG, only the orientation in EXIF counts
    if opened.format != "TIFF":  # which Pillow turns itself
        with suppress(Exception):  # the block is damaged, whatever the pixels are
            ImageOps.exif_transpose(opened, in_place=True)
    return convert_mode(opened, mode)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read all bytes of a file. Raises OSError for what is no file: a pipe would block, and a device may never end."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        raise OSError(f"it is no file, or has more than {MOST_BYTES:,} bytes")
    with open(path, "rb") as file:
        return file.read()


def convert_mode(image: Image.Image, mode: str | None) -> Image.Image:
    """Convert a decoded image to 8 bits and to `mode`: a palette is looked up, transparency is laid on white, and
    16-bit gray loses its lower byte. Raises ValueError for pixels whose range is unknown."""
    transparent = image.has_transparency_data
    onto_white = transparent and mode is not None and "A" not in mode
    if image.mode == (mode or "RGB") and not onto_white:
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PPM", "PNG")):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode[0] in "FI":
        raise ValueError(f"float or 32-bit pixels (mode {image.mode}) have no known range; store 8 or 16 bits")
    if image.mode in ("P", "PA", "1") or onto_white:
        plain = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        image = image.convert("RGBA" if transparent else plain)
        if onto_white:
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert(plain)
    return image if mode in (None, image.mode) else image.convert(mode)
