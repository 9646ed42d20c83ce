"""Decode one image in a worker process, whose memory is limited; formats and pixels are checked first.

C channels, S image_size
"""

import resource
import signal
import warnings
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from vitlab.serving.refusal import Refused
from vitlab_runtime.errors import ImageError
from vitlab_runtime.pixels import Preprocessing

MEGA = 1_000_000
GIB = 2**30
STATM = Path("/proc/self/statm")  # the sixth number: pages of data


@dataclass(frozen=True)
class ImageLimits:
    """What a decoder accepts: Pillow's names of formats, the most pixels, and the most bytes of memory that it takes
    beyond its own."""

    formats: tuple[str, ...]
    pixels: int
    memory: int

    def say_formats(self) -> str:
        return ", ".join(name.lower() for name in self.formats)


@cache
def prepare(limits: ImageLimits) -> None:
    """Set up this process once: accept only the formats, limit memory, and ignore Ctrl-C and SIGTERM, which may be sent
    to all processes of a server that still answers open requests."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    Image.init()
    Image.ID[:] = [name for name in Image.ID if name in limits.formats]
    Image.MAX_IMAGE_PIXELS = None  # ours is checked instead
    if STATM.exists():  # Linux: macOS does not hold a process to a limit
        used = int(STATM.read_text().split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = used + limits.memory
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))


def read_pixels(content: bytes, limits: ImageLimits, preprocessing: Preprocessing) -> np.ndarray:
    """Decode an image file to the pixels that `predict` gives its model: uint8 (C, S, S). Raises Refused."""
    prepare(limits)
    try:
        with Image.open(BytesIO(content)) as opened:  # reads the header alone
            width, height = opened.size
    except Exception:  # Pillow has many classes for what is wrong in a header
        raise Refused(415, f"it is no image in one of the formats {limits.say_formats()}") from None
    if width * height > limits.pixels:
        size = f"{width} x {height} pixels are more than the limit of {limits.pixels / MEGA:g} million"
        raise Refused(413, f"{size}; send a smaller image")
    try:
        return np.ascontiguousarray(preprocessing.load(content))
    except ImageError as error:
        if isinstance(error.__cause__, MemoryError):
            raise Refused(413, "it needs more memory than the server allows; send a smaller image") from None
        raise Refused(422, "it is damaged or of a kind that cannot be converted; save it again as PNG") from None
