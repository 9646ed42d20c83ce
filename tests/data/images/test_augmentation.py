"""Every augmentation of conf/augmentation is counted by (seed, epoch, index), on gray and on colour images."""

import random

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from vitlab.config.build import build
from vitlab.config.home import CONF
from vitlab.data.images.augmentation import GaussianBlur, RandomErasing, check_augmentation
from vitlab.data.images.random_crop import RandomResizedCrop
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import return_batch
from vitlab.data.order.sampler import Key, TrainingOrder
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError

FILES = sorted(file for file in (CONF / "augmentation").glob("*.yaml") if file.stem != "none")
NAMES = [file.stem for file in FILES]
S = 24


def built(name, channels=3):
    """An augmentation as `augmentation=name` makes it."""
    data = {"mean": [0.5] * channels, "std": [0.25] * channels}
    node = OmegaConf.load(CONF / "augmentation" / f"{name}.yaml")
    return build(OmegaConf.create({"data": data, "augmentation": node}).augmentation, "augmentation")


def scenes(count, channels=3):
    """Smooth pictures (count, S, S, C), each of its own colours."""
    waves = np.random.RandomState(0).rand(count, 1, 1, channels) * 4
    y, x = np.mgrid[:S, :S][..., None] / S
    pixels = (127 + 120 * np.sin(waves + 5 * x + 3 * y)).astype(np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def split_of(transform, *, channels=3, crop=None, seed=0, count=16):
    crop = crop or RandomResizedCrop(
        image_size=S, scale=[1.0, 1.0], ratio=[1.0, 1.0], method="torchvision", flip_rate=0.0, interpolation="bilinear"
    )  # the whole image: what changes is the augmentation's doing
    pool = ArrayPool(scenes(count, channels), OneClass(np.arange(count)), "scene")
    return ImageSplit(
        pool, np.arange(count), image_mode=None, in_chans=channels, crop=crop, transform=transform, seed=seed
    )


def images(split, epoch=0):
    return split.__getitems__([Key(epoch, index) for index in range(len(split))]).view


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_an_augmentation_is_a_function_of_seed_epoch_and_index(name, channels):
    transform = built(name, channels)
    plain, first = images(split_of(None, channels=channels)), images(split_of(transform, channels=channels))
    assert first.shape == (16, channels, S, S)
    assert first.dtype == torch.uint8
    torch.manual_seed(1)
    again = split_of(transform, channels=channels)
    assert torch.equal(torch.stack([again[0, i].image for i in reversed(range(16))]).flip(0), first)
    others = (plain, images(again, epoch=1), images(split_of(transform, channels=channels, seed=1)))
    for other in others:
        assert (first != other).flatten(1).any(dim=1).sum() >= 5


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_workers_changes_no_augmentation(name):
    def epoch(num_workers):
        order = TrainingOrder(16, global_batch_size=8, accumulation=2, rank=0, world_size=1, seed=0, position=lambda: 0)
        loader = DataLoader(
            split_of(built(name)), batch_sampler=order, num_workers=num_workers, collate_fn=return_batch
        )
        return [(batch.index.tolist(), batch.view.numpy().tobytes()) for batch in loader]

    assert epoch(0) == epoch(2)


@pytest.mark.parametrize("name", NAMES)
def test_no_augmentation_draws_what_nobody_counts(name, monkeypatch):
    """Python's and numpy's generators are not seeded by (seed, epoch, index)."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"{name} draws from a generator that is not counted")

    for module in (random, np.random):
        for drawn in (d for d in dir(module) if d[0].islower() and callable(getattr(module, d))):
            monkeypatch.setattr(module, drawn, refuse)
    transform = built(name)
    for index in range(30):  # each operation of a policy has its turn
        torch.manual_seed(index)
        transform(Image.new("RGB", (S, S)))


@pytest.mark.parametrize("mode", ["L", "RGB", "tensor"])
def test_erasing_fills_a_box_with_uint8_noise(mode):
    options = {"p": 1.0, "scale": [0.2, 0.2], "ratio": [1.0, 1.0]}
    image = torch.full((4, 50, 50), 9, dtype=torch.uint8) if mode == "tensor" else Image.new(mode, (50, 50), 9)

    def erased(mean, std):
        torch.manual_seed(0)
        result = v2.functional.to_image(RandomErasing(**options, mean=mean, std=std)(image))
        box = (result[0] != result[0, 0, 0]).nonzero()
        (top, left), (bottom, right) = box.amin(0).tolist(), box.amax(0).tolist()
        assert (bottom - top, right - left) == (21, 21)  # a fifth of the area
        return result[:, top : bottom + 1, left : right + 1].float()

    channels = {"L": 1, "RGB": 3, "tensor": 4}[mode]
    uniform = erased(None, None)
    assert (uniform.min(), uniform.max()) == (0, 255) if mode != "L" else uniform.max() > 240
    assert abs(uniform.mean() - 127.5) < 12
    assert uniform.std() == pytest.approx(255 / 12**0.5, rel=0.1)
    normal = erased([0.6] * channels, [0.1] * channels)
    assert abs(normal.mean() - 153) < 5
    assert normal.std() == pytest.approx(25.5, rel=0.1)
    assert (erased([0.6] * channels, [0.0] * channels) == 153).all()


def test_what_does_not_fit_is_refused():
    options = {"p": 1.0, "scale": [0.1, 0.2], "ratio": [1.0, 1.0]}
    with pytest.raises(ValueError, match="must both be null, or have one value"):
        RandomErasing(**options, mean=[0.5], std=None)
    with pytest.raises(ConfigError, match="has 3 channels, but the image 1"):
        RandomErasing(**options, mean=[0.5] * 3, std=[0.1] * 3)(Image.new("L", (S, S)))
    for sigma in ([2.0, 1.0], [0.0, 1.0], [1.0]):
        with pytest.raises(ValueError, match="is not a range of two numbers above 0"):
            GaussianBlur(sigma=sigma)


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_other_channels_than_1_or_3_are_taken_or_refused(name, channels):
    if name == "erasing" or (name, channels) == ("color_jitter", 4):  # Pillow takes RGBA
        return check_augmentation("augmentation", built(name), channels)
    with pytest.raises(ConfigError, match=f"not for images of {channels} channels, only of 1 or 3"):
        check_augmentation("augmentation", built(name, channels), channels)
    check_augmentation("augmentation", built(name), 3)
    return None


def test_a_blur_is_the_same_on_pillow_images_and_tensors():
    image = Image.fromarray(scenes(1)[0])
    for sigma in (0.5, 2.0):
        blur = GaussianBlur(sigma=[sigma, sigma])
        ours, reference = v2.functional.to_image(blur(image)), blur(v2.functional.to_image(image))
        inner = (ours.int() - reference.int())[:, 6:-6, 6:-6]  # their edges differ
        assert inner.abs().max() <= 3


def test_views_and_crops_of_several_sizes_are_drawn_apart():
    """What self-supervised training wants of a sample: two global and four local crops, each with its own numbers."""

    def crop(size, scale):
        return RandomResizedCrop(
            image_size=size,
            scale=scale,
            ratio=[0.75, 1.33],
            method="torchvision",
            flip_rate=0.5,
            interpolation="bicubic",
        )

    augmentation = built("three_augment")
    split = split_of(augmentation, crop=crop(24, [0.4, 1.0]))
    local = split.replace_crop(crop(12, [0.05, 0.4]), augmentation)

    def views(epoch):
        large = [split.__getitems__([Key(epoch, i, view) for i in range(16)]) for view in range(2)]
        small = [local.__getitems__([Key(epoch, i, view, 8) for i in range(16)]) for view in range(2, 6)]
        return large + small

    first, again, later = views(0), views(0), views(1)
    assert [tuple(batch.view.shape[2:]) for batch in first] == [(24, 24)] * 2 + [(8, 8)] * 4
    for one, same, other in zip(first, again, later, strict=True):
        assert torch.equal(one.view, same.view)
        assert (one.view != other.view).flatten(1).any(dim=1).all()
    for batches in (first[:2], first[2:]):
        for sample in zip(*(batch.view for batch in batches), strict=True):
            assert len({image.numpy().tobytes() for image in sample}) == len(batches)
    sizes, keys = np.full((16, 2), 24), [[Key(0, i, view) for i in range(16)] for view in range(6)]
    boxes = np.stack([split.crop(sizes, split.numbers(k, split.crop.draws)).boxes for k in keys])  # (6 views, 16, 4)
    correlation = np.corrcoef(np.stack([split.numbers(k, split.crop.draws).ravel() for k in keys])) - np.eye(6)
    assert len(np.unique(boxes.reshape(-1, 4), axis=0)) > 60
    assert np.abs(correlation).max() < 0.2
