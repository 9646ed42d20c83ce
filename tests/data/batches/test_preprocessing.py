"""The end of the data path: scaling, normalising and cutting."""

import pytest
import torch

from vitlab.data.batches.preprocessing import Preprocessing
from vitlab.layers import patchify

MEAN, STD = [0.1, 0.5, 0.9], [0.2, 0.25, 0.5]


@pytest.fixture
def images():
    return torch.randint(0, 256, (2, 3, 8, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def preprocessing(**changes):
    return Preprocessing(**{"mean": MEAN, "std": STD, "in_chans": 3, "patch_size": 4} | changes)


def test_normalize_scales_and_shifts_each_channel(images):
    normal = preprocessing().normalize(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - MEAN[channel]) / STD[channel]
        torch.testing.assert_close(normal[:, channel].double(), expected, atol=1e-6, rtol=1e-6)


def test_denormalize_is_the_inverse_of_normalize(images):
    process = preprocessing()
    torch.testing.assert_close(process.denormalize(process.normalize(images)), images / 255)


def test_denormalize_stays_within_zero_and_one():
    pictures = preprocessing().denormalize(torch.randn(2, 3, 8, 8) * 10)
    assert (pictures.min(), pictures.max()) == (0, 1)


def test_cut_is_patchify(images):
    process = preprocessing()
    patches, grid = process.cut(process.normalize(images))
    assert grid == (2, 3)
    assert torch.equal(patches, patchify(process.normalize(images), 4))


def test_without_a_patch_size_images_stay_images(images):
    pixels, grid = preprocessing(patch_size=None).cut(images)
    assert pixels is images
    assert grid is None


@pytest.mark.parametrize("key", ["mean", "std"])
@pytest.mark.parametrize("values", [[0.5], [0.5] * 4, []])
def test_one_value_for_each_channel_or_an_error(key, values):
    with pytest.raises(ValueError, match=rf"data\.{key} has {len(values)} values, but data\.in_chans is 3"):
        preprocessing(**{key: values})
