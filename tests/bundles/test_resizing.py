"""Resizing inside a graph gives the pixels that evaluation sees."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.bundles.resizing import KERNELS, Resize
from vitlab.data.images.squares import CenterCrop, WholeImage
from vitlab.data.loading.dataset import crop_for_evaluation

SIZES = [(32, 32), (17, 90), (48, 64), (200, 131), (333, 500), (5, 7)]


def draw_photo(height, width):
    """Draw colours that change as slowly as in a photograph."""
    coarse = np.random.RandomState(height * width).randint(0, 256, (height // 8 + 1, width // 8 + 1, 3))
    return np.array(Image.fromarray(coarse.astype(np.uint8)).resize((width, height)))


@pytest.mark.parametrize("interpolation", [name for name in KERNELS if name != "box"])
@pytest.mark.parametrize("resize_size", [None, 36])
def test_pixels_are_those_of_pillow(interpolation, resize_size):
    for height, width in SIZES:
        photo = draw_photo(height, width)
        options = {"image_size": 32, "interpolation": interpolation}
        crop = CenterCrop(resize_size=36, **options) if resize_size else WholeImage(**options)
        expected = crop_for_evaluation(photo, crop, "RGB").float()
        found = Resize(resize_size=resize_size, **options)(torch.from_numpy(photo)[None])[0]
        assert found.shape == expected.shape
        apart = (found - expected).abs()
        assert apart.max() <= 4, (height, width)  # clipped halfway, where Pillow begins with the other direction
        assert apart.mean() < 0.25, (height, width)


@pytest.mark.parametrize("interpolation", ["box", "nearest"])
def test_filters_with_edges_differ_only_where_a_pixel_lies_on_the_edge(interpolation):
    for height, width in SIZES:
        photo = draw_photo(height, width)
        expected = crop_for_evaluation(photo, WholeImage(image_size=32, interpolation=interpolation), "RGB").float()
        resize = Resize(image_size=32, resize_size=None, interpolation=interpolation)
        apart = (resize(torch.from_numpy(photo)[None])[0] - expected).abs()
        assert (apart > 1).float().mean() < 0.05, (height, width)


def test_images_of_the_right_size_stay_as_they_are():
    images = torch.randint(0, 256, (3, 32, 32, 1), dtype=torch.uint8)
    for interpolation in ("nearest", *KERNELS):
        found = Resize(image_size=32, resize_size=None, interpolation=interpolation)(images)
        assert torch.equal(found, images.permute(0, 3, 1, 2).float())
