"""Batches that are cut out on the device are those that workers cut, sample for sample."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from stand_in import datamodule_of, stand_in
from torchvision.transforms import v2

from vitlab.data import CenterCrop, RandomResizedCrop, ShiftedCrop, TokenBudget, WholeImage
from vitlab.data.batches.batch import RawBatch
from vitlab.data.cache import CACHES, CropsOnly, copy_to_device, cut_out, holds_pixels
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.order.sampler import Key, TrainingOrder
from vitlab.data.pools.pool import ArrayPool, Pool
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError

SHIFTED = ShiftedCrop(image_size=16, padding=3, flip_rate=0.5, interpolation="bilinear")
WHOLE = WholeImage(image_size=16, interpolation="bilinear")


def pictures(n=40, side=16, channels=3):
    """Smooth colours, (n, side, side, channels)."""
    random = np.random.RandomState(0)
    coarse = random.randint(0, 256, (n, 5, 5, 3), dtype=np.uint8)
    whole = [np.asarray(Image.fromarray(c).resize((side, side), Image.Resampling.BICUBIC)) for c in coarse]
    return np.stack(whole) if channels == 3 else np.stack(whole)[:, :, :, 0]


def split_of(crop, pool=None, channels=3, **changes):
    pool = pool or ArrayPool(pictures(channels=channels), OneClass(np.arange(40) % 7), "pictures")
    settings = {"image_mode": None, "in_chans": channels, "transform": None, "seed": 5}
    return ImageSplit(pool, np.arange(len(pool))[::-1][:37].copy(), crop=crop, **settings | changes)


def epoch_of(split, image_size=0):
    """The keys of an epoch, in batches of 8; each sample comes twice."""
    order = TrainingOrder(
        len(split),
        global_batch_size=8,
        accumulation=1,
        rank=0,
        world_size=1,
        seed=0,
        position=lambda: 4,
        repeats=2,
        image_size=lambda step: image_size,
    )
    return list(order)


def both(split, image_size=0):
    """Each batch as workers cut it, and as the device does."""
    crops, held = CropsOnly.from_split(split), copy_to_device(torch.device("cpu"), split)
    for keys in epoch_of(split, image_size):
        asked = crops.__getitems__(keys)
        yield (
            split.__getitems__(keys),
            RawBatch((cut_out(held[asked.index], asked.views[0]),), asked.target, asked.index),
        )


@pytest.mark.parametrize("crop", [SHIFTED, WHOLE, SHIFTED.resize(16)], ids=["shifted", "whole", "at its own size"])
@pytest.mark.parametrize("channels", [1, 3])
def test_shifts_and_flips_are_the_same_bits(crop, channels):
    split, seen = split_of(crop, channels=channels), set()
    for expected, found in both(split):
        assert found.view.dtype == torch.uint8
        assert torch.equal(found.view, expected.view)
        assert torch.equal(found.target, expected.target)
        assert torch.equal(found.index, expected.index)
        seen |= {image.numpy().tobytes() for image in found.view}
    assert len(seen) == (len(split) // 8 * 4 if crop is WHOLE else len(split) // 8 * 8)


@pytest.mark.parametrize("method", ["torchvision", "inception"])
@pytest.mark.parametrize(("image_size", "step_size"), [(16, 0), (32, 0), (12, 0), (32, 16)])
def test_resized_boxes_are_those_of_workers_and_their_pixels_close(method, image_size, step_size):
    crop = RandomResizedCrop(
        image_size=image_size,
        scale=[0.1, 1.0],
        ratio=[3 / 4, 4 / 3],
        method=method,
        flip_rate=0.5,
        interpolation="bilinear",
    )
    split = split_of(crop, ArrayPool(pictures(side=48), OneClass(np.arange(40) % 7), "pictures"))
    differences = []
    for expected, found in both(split, step_size):
        assert found.view.shape == expected.view.shape == (8, 3, *[step_size or image_size] * 2)
        differences += (found.view - expected.view.float()).abs().mean(dim=(1, 2, 3)).tolist()
    assert np.mean(differences) < 2
    assert max(differences) < 4
    asked = CropsOnly.from_split(split).__getitems__(keys := [Key(1, index) for index in range(30)])
    crops = crop(np.full((30, 2), 48), split.numbers(keys, crop.draws))
    assert np.array_equal(asked.views[0].boxes, crops.boxes.astype(np.float32))
    assert np.array_equal(asked.views[0].flips, crops.flips)


@pytest.mark.parametrize(
    "crop", [WHOLE.resize(24), CenterCrop(image_size=12, resize_size=14, interpolation="bilinear")]
)
def test_crops_without_chance_are_close_too(crop):
    for expected, found in both(split_of(crop, ArrayPool(pictures(side=48), OneClass(np.arange(40) % 7), "pictures"))):
        assert (found.view - expected.view.float()).abs().mean() < 4


def test_boxes_are_drawn_on_the_size_in_the_source():
    class Smaller(ArrayPool):
        def size(self, i):
            return 96 + i, 64

    crop = RandomResizedCrop(
        image_size=16, scale=[0.3, 1], ratio=[0.75, 1.33], method="inception", flip_rate=0.5, interpolation="bilinear"
    )
    split = split_of(crop, Smaller(pictures(side=48), OneClass(np.arange(40) % 7), "pictures"))
    for expected, found in both(split):
        assert (found.view - expected.view.float()).abs().mean() < 4


def test_nothing_of_it_is_pixels():
    batch = CropsOnly.from_split(split_of(SHIFTED)).__getitems__([Key(0, index) for index in range(30)])
    (view,) = batch.views
    assert (view.shifts.shape, view.flips.shape, view.boxes) == ((30, 2), (30,), None)
    assert view.size == (16, 16)


def test_images_that_cannot_be_read_are_named_and_not_trained_on():
    pool = ArrayPool(pictures(), OneClass(np.arange(40) % 7), "pictures")
    pool.unreadable = {39: "torn", 37: "empty"}  # places 0 and 2 of the split
    asked = CropsOnly.from_split(split_of(SHIFTED, pool)).__getitems__([Key(0, index) for index in range(4)])
    assert asked.index.tolist() == [1, 3]
    assert [str(bad) for bad in asked.unreadable] == ["pictures image 39: torn", "pictures image 37: empty"]
    assert [bad.index for bad in asked.unreadable] == [0, 2]
    none = CropsOnly.from_split(split_of(SHIFTED, pool)).__getitems__([Key(0, 2)])
    assert (len(none.target), len(none.unreadable)) == (0, 1)


@pytest.mark.parametrize(("channels", "image_mode", "in_chans"), [(1, "RGB", 3), (3, "L", 1)])
def test_pixels_in_another_mode_are_converted_once(tmp_path, channels, image_mode, in_chans):
    pool = ArrayPool(pictures(channels=channels), OneClass(np.arange(40) % 7), "pictures")
    assert not holds_pixels(pool, in_chans)
    settings = {"size": 16, "image_mode": image_mode, "in_chans": in_chans, "num_workers": 0}
    held = CACHES["device"](pool, tmp_path, **settings)
    assert holds_pixels(held, in_chans)
    split = split_of(SHIFTED, pool, image_mode=image_mode, in_chans=in_chans)
    crops, images = (
        CropsOnly.from_split(split.replace_pool(held)),
        copy_to_device(torch.device("cpu"), split.replace_pool(held)),
    )
    for keys in epoch_of(split):
        asked = crops.__getitems__(keys)
        found = cut_out(images[asked.index], asked.views[0])
        assert torch.equal(found, split.__getitems__(keys).view)
    whole = split.replace_crop(WHOLE, None)
    assert not CropsOnly.is_exact(whole)
    assert CropsOnly.is_exact(whole.replace_pool(held))


# -- refusals


def test_a_split_that_is_transformed_is_refused():
    with pytest.raises(
        ConfigError, match=r"set augmentation=none and data\.images\.train_transform=null, or data\.cache\.kind=decoded"
    ):
        CropsOnly.from_split(split_of(SHIFTED, transform=v2.RandomGrayscale()))


def test_images_of_different_sizes_are_refused():
    budget = TokenBudget(patch_size=4, max_tokens=16, enlarge=False, flip_rate=0.5, interpolation="bilinear")
    files = Pool(OneClass(np.arange(40) % 7), "files")
    for split in (split_of(budget), split_of(SHIFTED, files)):
        with pytest.raises(ConfigError, match="images of one size"):
            CropsOnly.from_split(split)


# -- in the datamodule


def datamodule(cache):
    pools = {
        "train": ArrayPool(pictures(60), OneClass(np.arange(60) % 4), "train"),
        "val": ArrayPool(pictures(30)[::-1].copy(), OneClass(np.arange(30) % 4), "val"),
    }
    module = datamodule_of(
        source=SimpleNamespace(class_names=list("abcd"), in_chans=3, prepare=lambda: None, open=lambda: pools),
        image_size=16,
        image_mode=None,
        in_chans=3,
        num_classes=4,
        mean=[0.5] * 3,
        std=[0.25] * 3,
        train_crop=SHIFTED,
        eval_crop=WHOLE,
        train_transform=None,
        cache=cache,
        cache_root="no such folder",
        cache_size=16,
        val_fraction=0.0,
        test_fraction=0.2,
        labels_per_class=None,
        class_balance=0.0,
        patch_size=4,
        global_batch_size=8,
        device_batch_size=None,
        repeats=1,
        shuffle_window=None,
        num_workers=0,
        prefetch_batches=None,
        stall_timeout=0,
        on_bad_image="error",
        seed=0,
    )
    module.trainer = stand_in()
    module.setup()
    return module


def test_the_datamodule_gives_the_same_batches_with_and_without_it():
    for split, state in (
        ("train", {}),
        ("val", {"training": False, "validating": True}),
        ("test", {"training": False}),
    ):
        batches = []
        for cache in ("none", "device"):
            module = datamodule(cache)
            module.trainer = stand_in(**state)
            loader = getattr(module, f"{split}_dataloader")()
            batches.append([module.on_after_batch_transfer(batch, 0) for batch in loader])
        assert len(batches[0]) == len(batches[1]) > 1
        for plain, cut in zip(*batches, strict=True):
            assert plain.view.grid == cut.view.grid == (4, 4)
            assert torch.equal(plain.view.inputs, cut.view.inputs)
            assert all(torch.equal(a, b) for a, b in zip(plain[1:], cut[1:], strict=True))
