"""Pixels that torch resamples are Pillow's to within one level, and the whole way from file to crop stays close."""

import numpy as np
import pytest
import torch
from pictures import noise, photo, stored
from PIL import Image
from torchvision.transforms.v2 import functional as F

from vitlab.data import RandomResizedCrop
from vitlab.data.images.decoding import open_image
from vitlab.data.images.resampling import resample
from vitlab.data.loading.dataset import crop_image
from vitlab.seeding import draw_numbers

SIZES = [
    ((37, 61), (16, 16)),
    ((375, 500), (224, 224)),
    ((224, 224), (224, 224)),
    ((20, 31), (64, 48)),
    ((5, 300), (9, 7)),
]
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")


def by_pillow(pixels, box, size, interpolation):
    """Cropped, then resized. -> (C, h, w)"""
    image = Image.fromarray(pixels).crop(tuple(int(side) for side in box))
    return F.pil_to_tensor(image.resize(size[::-1], Image.Resampling[interpolation.upper()]))


def whole(pixels):
    return np.array([0.0, 0.0, pixels.shape[1], pixels.shape[0]])


@pytest.mark.parametrize(("source", "size"), SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3])
def test_torch_is_within_one_level_of_pillow(source, size, interpolation, channels):
    for pixels in (photo(*source), noise(*source, 3)):
        pixels = pixels if channels == 3 else pixels[:, :, 0].copy()
        found = resample(pixels, whole(pixels), size, interpolation, exact=False)
        assert (found.dtype, found.shape) == (torch.uint8, (channels, *size))
        assert (found.int() - by_pillow(pixels, whole(pixels), size, interpolation).int()).abs().max() <= 1
        if interpolation == "bicubic":
            break  # noise saturates between Pillow's two passes, whose order depends on the sizes


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("form", ["array", "image"])
@pytest.mark.parametrize("box", [(3, 4, 30, 20), (0, 0, 40, 30), (39, 29, 40, 30), (10, 0, 11, 30)])
def test_a_box_of_whole_pixels_knows_nothing_of_what_lies_around(interpolation, form, box):
    pixels, other = photo(30, 40), noise(30, 40, 3)
    left, top, right, bottom = box
    other[top:bottom, left:right] = pixels[top:bottom, left:right]
    held = [Image.fromarray(p) if form == "image" else p for p in (pixels, other)]
    first, second = (resample(p, np.array(box, float), (12, 10), interpolation, exact=False) for p in held)
    assert torch.equal(first, second)
    assert (first.int() - by_pillow(pixels, box, (12, 10), interpolation).int()).abs().max() <= 1


@pytest.mark.parametrize("box", [(-0.4, 0.3, 8.4, 7.7), (7.9, 7.9, 7.95, 7.95), (3.2, 3.2, 3.3, 3.3), (7.6, 0, 8.2, 8)])
def test_a_box_in_fractions_is_rounded_to_one_pixel_at_least(box):
    pixels = noise(8, 8, 3)
    left, top = (min(round(side), 7) for side in box[:2])
    right, bottom = (max(min(round(side), 8), near + 1) for side, near in zip(box[2:], (left, top), strict=True))
    found = resample(pixels, np.array(box), (4, 4), "bilinear", exact=False)
    assert (found.int() - by_pillow(pixels, (left, top, right, bottom), (4, 4), "bilinear").int()).abs().max() <= 1


@pytest.mark.parametrize("exact", [True, False])
def test_what_has_the_right_size_is_not_touched(exact):
    for pixels in (noise(8, 8, 3), noise(8, 8), Image.fromarray(noise(8, 8, 3))):
        found = resample(pixels, np.array([0.0, 0.0, 8.0, 8.0]), (8, 8), "bicubic", exact)
        assert np.array_equal(found.permute(1, 2, 0).squeeze(-1), pixels)
    crop = resample(noise(20, 20, 3), np.array([5.0, 6.0, 13.0, 14.0]), (8, 8), "lanczos", exact)
    assert np.array_equal(crop.permute(1, 2, 0), noise(20, 20, 3)[6:14, 5:13])


@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("exact", [True, False])
def test_channels_that_pillow_does_not_know_are_resampled_one_like_the_other(channels, interpolation, exact):
    pixels = np.repeat(photo(30, 40)[:, :, :1], channels, axis=2)
    found = resample(pixels, whole(pixels), (12, 10), interpolation, exact)
    assert found.shape == (channels, 12, 10)
    assert (found == found[:1]).all()
    reference = by_pillow(pixels[:, :, 0].copy(), whole(pixels), (12, 10), interpolation)
    assert (found[:1].int() - reference.int()).abs().max() <= (12 if interpolation == "lanczos" else 1)


def test_the_result_is_the_callers_own():
    pixels = noise(8, 8, 3)
    pixels.flags.writeable = False
    resample(pixels, whole(pixels), (8, 8), "bilinear", exact=False).fill_(0)
    assert pixels.any()


@pytest.mark.slow
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("method", ["torchvision", "inception"])
@pytest.mark.parametrize("image_size", [64, 160])
def test_from_file_to_crop_is_close_to_the_full_decode_resized_by_pillow(method, interpolation, image_size):
    crop = RandomResizedCrop(
        image_size=image_size,
        scale=[0.08, 1.0],
        ratio=[3 / 4, 4 / 3],
        method=method,
        flip_rate=0.5,
        interpolation=interpolation,
    )
    differences, scales = [], set()
    for seed, size in enumerate([(375, 500), (500, 333), (768, 1024)]):
        content = stored(photo(*size, seed), "JPEG", quality=90)
        full = np.asarray(open_image(content, "RGB").pixels()[0])
        sizes = np.tile(np.array(size), (12, 1))
        crops = crop(sizes, draw_numbers("test", np.arange(12)[:, None] + 100 * seed, crop.draws))
        for k, (box, flip) in enumerate(zip(crops.boxes, crops.flips, strict=True)):
            found = crop_image(open_image(content, "RGB"), sizes[k], [(crop, crops)], k)[0]
            expected = by_pillow(full, box, (image_size, image_size), interpolation)
            expected = expected.flip(-1) if flip else expected
            differences.append((found.int() - expected.int()).abs().float().mean().item())
            wanted = image_size * sizes[k] / (box[3] - box[1], box[2] - box[0])
            scales.add(open_image(content, "RGB").pixels(tuple(wanted))[1])
    assert len(scales) > 1  # some were decoded at a lower resolution
    assert np.mean(differences) < 1
    assert max(differences) < 2
