"""Sources that need no file of the user's: scikit-learn's digits and pictures computed on the spot."""

import numpy as np
import pytest
import torch

from vitlab.data import Digits, Synthetic, SyntheticMultilabel

# -- digits


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    pool = Digits().open()["train"]
    expected = load_digits()
    assert len(pool) == 1797
    assert np.array_equal(pool.pixels, np.round(expected.images / 16 * 255))
    assert np.array_equal(pool.targets.values, expected.target)
    assert np.array_equal(np.asarray(pool.load(3)), pool.pixels[3])


# -- synthetic


def synthetic(**changes):
    settings = {"num_samples": 60, "num_classes": 4, "in_chans": 3, "image_size": 16, "noise": 0.1}
    return Synthetic(**settings | changes)


@pytest.mark.parametrize(("num_classes", "in_chans", "image_size"), [(1, 1, 1), (4, 3, 16), (7, 5, 33)])
def test_synthetic_images_have_the_size_that_is_asked_for(num_classes, in_chans, image_size):
    source = synthetic(num_classes=num_classes, in_chans=in_chans, image_size=image_size)
    pool = source.open()["train"]
    image = pool.load(59)
    assert (len(pool), len(source.class_names)) == (60, num_classes)
    assert (image.shape, image.dtype) == ((image_size, image_size, in_chans), np.uint8)
    counts = np.bincount(pool.targets.values, minlength=num_classes)
    assert counts.max() - counts.min() <= 1


def test_synthetic_images_are_always_the_same_and_all_different():
    first = [synthetic().open()["train"].load(i) for i in range(20)]
    torch.manual_seed(1)
    pool = synthetic().open()["train"]
    assert all(np.array_equal(first[i], pool.load(i)) for i in reversed(range(20)))
    assert len({image.tobytes() for image in first}) == 20


def test_synthetic_classes_can_be_learnt_but_not_from_single_pixels():
    """Nearest class mean: of the spectrum it tells the directions apart, of the pixels it does not."""
    pool = synthetic(num_samples=300, in_chans=1).open()["train"]
    pixels = torch.stack([torch.from_numpy(pool.load(i)[..., 0]).float() for i in range(300)])
    targets = torch.from_numpy(pool.targets.values)

    def accuracy(features):
        means = torch.stack([features[:200][targets[:200] == k].mean(dim=0) for k in range(4)])
        nearest = (features[200:, None] - means).flatten(2).norm(dim=2).argmin(dim=1)
        return (nearest == targets[200:]).float().mean()

    assert accuracy(torch.fft.fft2(pixels - pixels.mean()).abs()) > 0.95
    assert accuracy(pixels) < 0.6


# -- several waves in an image


def many(**changes):
    settings = {"num_samples": 400, "num_classes": 5, "in_chans": 3, "image_size": 16, "noise": 0.1}
    return SyntheticMultilabel(**settings | changes)


def test_several_synthetic_classes_an_image():
    pool = many().open()["train"]
    assert pool.targets.values.shape == (400, 5)
    assert pool.targets.values.dtype == np.uint8
    assert np.bincount(pool.targets.values.sum(axis=1)).min() > 70  # images of none, one, two and three
    assert pool.targets.values.sum(axis=1).max() == 3
    assert 0.2 < pool.targets.values.mean(axis=0).min() < pool.targets.values.mean(axis=0).max() < 0.4
    again = many().open()["train"]
    assert np.array_equal(pool.targets.values, again.targets.values)
    assert all(np.array_equal(pool.load(i), again.load(i)) for i in range(20))
    assert (
        pool.fingerprint == again.fingerprint != synthetic(num_samples=400, num_classes=5).open()["train"].fingerprint
    )


def test_an_image_of_one_wave_is_the_plain_one_and_one_of_none_is_noise():
    plain, several = (
        synthetic(num_samples=400, num_classes=5, noise=0.0).open()["train"],
        many(noise=0.0).open()["train"],
    )
    counts = several.targets.values.sum(axis=1)
    same = [i for i in range(400) if counts[i] == 1 and several.targets.values[i, plain.targets.values[i]]]
    assert len(same) > 5
    assert all(np.array_equal(several.load(i), plain.load(i)) for i in same)
    assert len(np.unique(several.load(int(counts.argmin())))) == 1


@pytest.mark.parametrize("num_classes", [1, 2])
def test_no_more_waves_than_classes(num_classes):
    assert many(num_classes=num_classes).open()["train"].targets.values.sum(axis=1).max() == num_classes
