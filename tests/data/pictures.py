"""Pictures to test with, and the files they are stored in."""

import io

import numpy as np
from PIL import Image


def noise(*shape, seed=0):
    """Pixels that have nothing to do with each other, uint8."""
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


def photo(height, width, seed=0):
    """Colours in which half the size has half the contrast, as in what a camera sees, (H, W, 3)."""
    random = np.random.RandomState(seed)
    pixels = np.full((height, width, 3), 128.0)
    for octave in range(1, 8):
        coarse = Image.fromarray(random.randint(0, 256, (2**octave, 2**octave, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
        pixels += (smooth - 128.0) * 0.5**octave
    return np.clip(pixels, 0, 255).astype(np.uint8)


def stored(image, file_format, **options):
    """A file's content, of pixels or a Pillow image."""
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, file_format, **options)
    return file.getvalue()
