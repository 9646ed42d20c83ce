"""Bound the size of image files: small ones stay as they are, larger ones are shrunk and encoded anew."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

from vitlab.data.images.decoding import DamagedImage, open_image
from vitlab.data.images.resampling import make_image
from vitlab.data.pools.pool import Pool, Stored
from vitlab.data.shards.writing import EncodedImage
from vitlab.errors import ConfigError, DataError

QUALITY = 95  # from 1 to 100
SUBSAMPLING = "4:2:0"  # against 4:4:4: 23% fewer bytes and 36% more images/s to decode; most photographs come in it
IN_JPEG, IN_PNG = ("L", "RGB", "CMYK"), ("LA", "RGBA")  # Pillow's modes, and what holds them here
MOST_CHANNELS = 4
MAGIC = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG": "png",
    b"GIF8": "gif",
    b"RIFF": "webp",
    b"BM": "bmp",
    b"II": "tif",
    b"MM": "tif",
    b"P5": "pgm",
    b"P6": "ppm",
}


@dataclass(frozen=True)
class Reencoding:
    """A stored image -> the image file that is kept. Raises DamagedImage for what cannot be read to its end.

    An image whose shorter side has at most `shorter_side` pixels, and its longer one at most `longest_side` (None:
    any), keeps its bytes; pixels become a PNG, which loses nothing. A larger one is shrunk to that bound (Lanczos) and
    becomes a JPEG, upright and in `image_mode` (None: as stored); a PNG, if it is transparent.
    """

    image_mode: str | None
    shorter_side: int | None = None
    longest_side: int | None = None

    def __post_init__(self) -> None:
        for side in (self.shorter_side, self.longest_side):
            if side is not None and side < 1:
                raise ConfigError(f"a side of {side} pixels is not at least 1")
        shrinks = self.shorter_side is not None or self.longest_side is not None
        if shrinks and self.image_mode not in (None, *IN_JPEG, *IN_PNG):
            raise ConfigError(f"neither JPEG nor PNG keeps image_mode {self.image_mode}; use L, RGB or RGBA")

    def scale(self, height: int, width: int) -> float:
        """Give the factor by which height and width shrink; 1 at most."""
        bounds = [(self.shorter_side, min(height, width)), (self.longest_side, max(height, width))]
        return min(1.0, *(bound / side for bound, side in bounds if bound is not None), 1.0)

    def __call__(self, stored: Stored) -> EncodedImage:
        picture = open_image(stored, self.image_mode)
        height, width = picture.size
        scale = self.scale(height, width)
        if scale == 1:
            picture.pixels()  # decoded to be sure that it can be
            content = png(stored) if isinstance(stored, np.ndarray) else stored
            return EncodedImage(content, extension(content), None)
        size = max(1, round(height * scale)), max(1, round(width * scale))
        pixels, _ = picture.pixels((2 * size[0], 2 * size[1]))
        image = make_image(pixels) if isinstance(pixels, np.ndarray) else pixels
        content = reencode(image.resize(size[::-1], Image.Resampling.LANCZOS))
        return EncodedImage(content, extension(content), (height, width))


def reencode(image: Image.Image) -> bytes:
    file = BytesIO()
    if image.mode in IN_JPEG:
        image.save(file, "JPEG", quality=QUALITY, subsampling=SUBSAMPLING)
    elif image.mode in IN_PNG:
        image.save(file, "PNG")
    else:
        raise DamagedImage(
            f"neither JPEG nor PNG keeps pixels of mode {image.mode}; convert it with data.images.mode=RGB"
        )
    return file.getvalue()


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    make_image(pixels).save(file, "PNG")
    return file.getvalue()


def extension(content: bytes) -> str:
    """Tell a file's type by its first bytes, since other programs go by the name."""
    return next((name for magic, name in MAGIC.items() if content.startswith(magic)), "img")


def refuse_channels(pool: Pool) -> None:
    """Raise DataError for pixels in more channels than an image file holds."""
    stored = pool.load_many([0])[0] if len(pool) else None
    channels = stored.shape[2] if isinstance(stored, np.ndarray) and stored.ndim == 3 else 1
    if channels > MOST_CHANNELS:
        raise DataError(
            f"{pool.name(0)} has {channels} channels, and a JPEG or PNG holds at most {MOST_CHANNELS}; "
            "set data.cache.kind=none or data.cache.kind=decoded"
        )
