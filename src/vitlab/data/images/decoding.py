"""Decode a stored image: upright, in 8 bits, in the mode asked for, or an error that says why not.

H W image height and width, C channels
"""

from abc import ABC, abstractmethod
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from typing import Any, cast

import numpy as np
from PIL import Image, UnidentifiedImageError

from vitlab.data.pools.pool import Stored
from vitlab.errors import format_error

MOST_PIXELS = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's bound: more is taken for a decompression bomb
ORIENTATION = 0x0112  # EXIF: how the camera was held
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
TURNED = (5, 6, 7, 8)  # orientations that swap height and width
APP1, START_OF_SCAN = b"\xe1", b"\xda"  # JPEG's markers, after 0xff
WITHOUT_LENGTH = {b"\x00", b"\x01", b"\xff", b"", *(bytes([marker]) for marker in range(0xD0, 0xDA))}
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's names for numbers of channels

Pixels = Image.Image | np.ndarray  # (H, W) or (H, W, C) in uint8, if an array


class DamagedImage(ValueError):  # noqa: N818
    """An image that cannot be read, and why."""


DAMAGE = (OSError, ValueError)  # what loading and decoding raise for it


class Picture(ABC):
    """A stored image whose header has been read: its upright `size` (height, width) is known before it is decoded."""

    size: tuple[int, int]

    @abstractmethod
    def pixels(self, wanted: tuple[float, float] | None = None) -> tuple[Pixels, int]:
        """Decode, and tell by what power of 2 the result is smaller than `size`, in each direction. JPEGs are decoded
        at a lower resolution where that still gives the `wanted` height and width. Raises DamagedImage."""


def open_image(stored: Stored, image_mode: str | None) -> Picture:
    """Read an image's header. `image_mode`: Pillow's name for what it is converted to (L, RGB); None: as stored.

    16-bit gray loses its lower byte, a palette is looked up, transparency is laid on white, EXIF rotation undone.
    Raises DamagedImage for what is no image, has more than MOST_PIXELS, or whose values have no known range (float, 32
    bits).
    """
    if isinstance(stored, np.ndarray):
        return PixelArray(stored, image_mode)
    try:
        return (fast_jpeg(stored, image_mode) if is_jpeg(stored) else None) or PillowFile(stored, image_mode)
    except Exception as error:  # whatever a decoder raises for a file's content: the file cannot be read
        raise make_damaged_image(error) from error


def make_damaged_image(error: Exception) -> DamagedImage:
    if isinstance(error, DamagedImage):
        return error
    words = format_error(error)
    return DamagedImage("no image that Pillow knows" if isinstance(error, UnidentifiedImageError) else words)


def check_size(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise DamagedImage(f"{width}x{height} pixels are more than the limit of {MOST_PIXELS:,}")


class PixelArray(Picture):
    """Pixels that need no decoding."""

    def __init__(self, array: np.ndarray, image_mode: str | None):
        self.array, self.image_mode = array, image_mode
        self.size = (array.shape[0], array.shape[1])

    def pixels(self, wanted: tuple[float, float] | None = None) -> tuple[Pixels, int]:
        channels = self.array.shape[2] if self.array.ndim == 3 else 1
        if self.image_mode is None or Image.getmodebands(self.image_mode) == channels:
            return self.array, 1
        return convert_mode(Image.fromarray(self.array), self.image_mode), 1


class PillowFile(Picture):
    """An image file that Pillow reads."""

    def __init__(self, content: bytes, image_mode: str | None):
        self.image = Image.open(BytesIO(content))
        self.image_mode = image_mode
        check_size(*self.image.size)
        self.orientation = jpeg_orientation(content) if is_jpeg(content) else self.other_orientation()
        width, height = self.image.size
        self.size = (width, height) if self.orientation in TURNED else (height, width)

    def other_orientation(self) -> int:
        if self.image.format == "TIFF":
            return 1  # Pillow turns these itself
        if self.image.format == "PNG":
            self.image.load()  # EXIF may stand behind the pixels
        try:
            return cast(int, self.image.getexif().get(ORIENTATION, 1))
        except Exception:  # the block is damaged, whatever the pixels are
            return 1

    def pixels(self, wanted: tuple[float, float] | None = None) -> tuple[Pixels, int]:
        try:
            scale = 1
            if wanted is not None:
                height, width = reversed(wanted) if self.orientation in TURNED else wanted
                before = self.image.size
                drafted = self.image.draft(None, (int(np.ceil(width)), int(np.ceil(height))))
                scale = round(before[0] / drafted[1][2]) if drafted else 1
            self.image.load()
            image = convert_mode(self.image, self.image_mode)
            if self.orientation in UPRIGHT:
                image = image.transpose(UPRIGHT[self.orientation])
            return image, scale
        except Exception as error:
            raise make_damaged_image(error) from error


def convert_mode(image: Image.Image, image_mode: str | None) -> Image.Image:
    """Convert a decoded image to 8 bits and to `image_mode` (None: as stored, a palette looked up)."""
    transparent = image.has_transparency_data
    onto_white = transparent and image_mode is not None and "A" not in image_mode
    if image.mode == (image_mode or "RGB") and not onto_white:
        return image
    has_16_bits = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PPM", "PNG"))
    if image.mode[0] in "FI" and not has_16_bits:
        raise DamagedImage(f"float or 32-bit pixels (mode {image.mode}) have no known range; store 8 or 16 bits")
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("P", "PA", "1") or onto_white:
        plain = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        image = image.convert("RGBA" if transparent else plain)
        if onto_white:
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image).convert(plain)
    return image if image_mode in (None, image.mode) else image.convert(image_mode)


# -- JPEG by libjpeg-turbo alone, where the extra `fast` is installed


@cache
def simplejpeg() -> Any:
    """Import the library; None without it."""
    if find_spec("simplejpeg") is None:
        return None
    import simplejpeg

    return simplejpeg


def is_jpeg(content: bytes) -> bool:
    return content[:3] == b"\xff\xd8\xff"


def jpeg_orientation(content: bytes) -> int:
    """Read a JPEG's EXIF orientation; 1, upright, where there is none or it is damaged."""
    exif = Image.Exif()
    try:
        exif.load(exif_block(content))
        return cast(int, exif.get(ORIENTATION, 1))
    except Exception:
        return 1


def exif_block(content: bytes) -> bytes:
    """Find the EXIF block of a JPEG: walk through its segments up to the one that begins the pixels."""
    place = 2
    while (place := content.find(b"\xff", place)) >= 0:
        marker = content[place + 1 : place + 2]
        if marker == START_OF_SCAN:
            break
        if marker in WITHOUT_LENGTH:
            place += 1
            continue
        end = place + 2 + int.from_bytes(content[place + 2 : place + 4], "big")
        if marker == APP1 and content.startswith(b"Exif\x00\x00", place + 4):
            return content[place + 4 : end]
        place = end
    return b""


def fast_jpeg(content: bytes, image_mode: str | None) -> Picture | None:
    """Open a plain JPEG in its own mode; None for what is left to Pillow."""
    library = simplejpeg()
    if library is None or image_mode not in (None, "RGB", "L"):
        return None
    try:
        height, width, colorspace, _ = library.decode_jpeg_header(content)
    except ValueError:
        return None
    target = {"Gray": image_mode or "L", "YCbCr": image_mode or "RGB"}.get(colorspace)
    if target is None or (target == "L" and colorspace != "Gray") or jpeg_orientation(content) in UPRIGHT:
        return None
    check_size(width, height)
    return FastJPEG(content, image_mode, (height, width), target)


class FastJPEG(Picture):
    """A JPEG decoded to the same pixels as Pillow's, but faster; one that libjpeg complains about is read by Pillow."""

    def __init__(self, content: bytes, image_mode: str | None, size: tuple[int, int], target: str):
        self.content, self.image_mode, self.size, self.target = content, image_mode, size, target

    def pixels(self, wanted: tuple[float, float] | None = None) -> tuple[Pixels, int]:
        height, width = wanted or self.size
        scale = 1
        while scale < 8 and self.size[0] // (2 * scale) >= height and self.size[1] // (2 * scale) >= width:
            scale *= 2
        smallest = (
            {"min_height": -(-self.size[0] // scale), "min_width": -(-self.size[1] // scale)} if scale > 1 else {}
        )
        try:
            colorspace = "GRAY" if self.target == "L" else "RGB"
            array = simplejpeg().decode_jpeg(self.content, colorspace=colorspace, **smallest, min_factor=scale)
        except ValueError:
            return PillowFile(self.content, self.image_mode).pixels(wanted)
        return array[:, :, 0] if self.target == "L" else array, scale
