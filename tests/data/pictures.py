"""Pictures to test with, the files they are stored in, and splits of them."""

import io

import numpy as np
from PIL import Image

from vitlab.data.images.squares import CenterCrop
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass

CROP = CenterCrop(image_size=8, resize_size=8, interpolation="bilinear")


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


def in_memory(pixels):
    """A pool of pixels (n, H, W, C), all of one class."""
    return ArrayPool(pixels, OneClass(np.zeros(len(pixels), np.int64)), "noise")


def split_of(pool, indices=None, image_mode="RGB"):
    """A split of these images of a pool, or of all."""
    indices = np.arange(len(pool)) if indices is None else np.array(indices)
    return ImageSplit(pool, indices, image_mode=image_mode, in_chans=3, crop=CROP, transform=None, seed=0)
