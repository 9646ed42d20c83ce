"""Images that are nearly the same: found, and not mixed up with images that only look alike."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.trials.near_duplicates import SIDE, is_near


def picture(seed, size=64):
    """A smooth picture, as photographs are."""
    noise = np.random.RandomState(seed).randint(0, 256, (8, 8), dtype=np.uint8)
    return Image.fromarray(noise).resize((size, size), Image.Resampling.BICUBIC)


def small(image):
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels.astype(np.float32)).flatten()


def saved(image, quality):
    content = BytesIO()
    image.save(content, "JPEG", quality=quality)
    return Image.open(content)


KNOWN = torch.stack([small(picture(seed)) for seed in range(50)])


@pytest.mark.parametrize("change", [lambda i: saved(i, 75), lambda i: i.resize((100, 100)), lambda i: i])
def test_a_copy_is_near(change):
    assert is_near(torch.stack([small(change(picture(7)))]), KNOWN).tolist() == [True]


def test_another_picture_is_not():
    assert not is_near(torch.stack([small(picture(seed)) for seed in range(50, 150)]), KNOWN).any()


def test_empty_pictures_are_not_compared():
    flat = torch.full((2, SIDE * SIDE), 255.0)
    assert not is_near(flat, torch.cat([KNOWN, flat])).any()
