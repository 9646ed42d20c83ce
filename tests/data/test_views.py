"""Several views of an image: drawn apart, the same from workers, from a ring and from a device's memory."""

import numpy as np
import pytest
import torch
from stand_in import datamodule_of, stand_in

from vitlab.data import Digits, Mixing, MultiCrop, RandomResizedCrop, WholeImage
from vitlab.data.images.crop import Crop
from vitlab.errors import ConfigError

MIXED = Mixing(rate=1.0, cutmix_rate=0.0, mixup_alpha=0.2, cutmix_alpha=1.0)


def box(image_size: int, scale: list[float]) -> Crop:
    return RandomResizedCrop(
        image_size=image_size,
        scale=scale,
        ratio=[0.8, 1.25],
        method="torchvision",
        flip_rate=0.5,
        interpolation="bilinear",
    )


def multi_crop(num_large=2, num_small=3):
    return MultiCrop(large=box(16, [0.5, 1.0]), num_large=num_large, small=box(8, [0.2, 0.5]), num_small=num_small)


def datamodule(**changes):
    options = {
        "source": Digits(),
        "image_size": 16,
        "image_mode": None,
        "in_chans": 1,
        "num_classes": 10,
        "mean": [0.3],
        "std": [0.4],
        "train_crop": multi_crop(),
        "eval_crop": WholeImage(image_size=16, interpolation="bilinear"),
        "train_transform": None,
        "cache": "none",
        "cache_root": "no such folder",
        "cache_size": 8,
        "val_fraction": 0.2,
        "test_fraction": 0.7,
        "labels_per_class": None,
        "class_balance": 0.0,
        "patch_size": 4,
        "global_batch_size": 32,
        "device_batch_size": 16,
        "repeats": 1,
        "shuffle_window": None,
        "num_workers": 0,
        "prefetch_batches": None,
        "stall_timeout": 0,
        "on_bad_image": "error",
        "seed": 0,
    }
    module = datamodule_of(**options | changes)
    module.trainer = stand_in()
    module.setup()
    return module


def epoch(**changes):
    module = datamodule(**changes)
    return [module.on_after_batch_transfer(batch.to(torch.device("cpu")), 0) for batch in module.train_dataloader()]


def test_a_batch_has_views_of_two_sizes_which_differ_in_an_image():
    batch = epoch()[0]
    assert [view.grid for view in batch.views] == [(4, 4)] * 2 + [(2, 2)] * 3
    assert [tuple(view.inputs.shape) for view in batch.views] == [(16, 16, 16)] * 2 + [(16, 4, 16)] * 3
    for same in (batch.views[:2], batch.views[2:]):  # of 8x8 pixels there are not many boxes
        different = [len({view.inputs[k].numpy().tobytes() for view in same}) == len(same) for k in range(16)]
        assert sum(different) > 12


def test_workers_write_the_same_views_into_their_ring():
    for plain, read in zip(epoch(), epoch(num_workers=2), strict=True):
        assert torch.equal(plain.index, read.index)
        for a, b in zip(plain.views, read.views, strict=True):
            assert torch.equal(a.inputs, b.inputs)


def test_a_device_cuts_the_boxes_that_workers_cut():
    """Resized by another library: the same boxes and flips, and pixels close by."""
    for plain, cut in zip(epoch(), epoch(cache="device"), strict=True):
        assert torch.equal(plain.index, cut.index)
        for a, b in zip(plain.views, cut.views, strict=True):
            assert a.inputs.shape == b.inputs.shape
            assert np.corrcoef(a.inputs.flatten(), b.inputs.flatten())[0, 1] > 0.9


def test_repeats_have_views_of_their_own():
    batch = epoch(repeats=2)[0]
    order = batch.index.argsort(stable=True).view(-1, 2)
    for view in batch.views:
        first, second = view.inputs[order[:, 0]], view.inputs[order[:, 1]]
        assert (first != second).flatten(1).any(dim=1).all()


def test_one_view_is_the_crop_alone():
    """So that runs of before draw what they drew."""
    alone, one = epoch(train_crop=box(16, [0.5, 1.0]))[0], epoch(train_crop=multi_crop(1, 0))[0]
    assert torch.equal(alone.view.inputs, one.view.inputs)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mixing": MIXED}, "several views of an image cannot be mixed"),
        ({"eval_crop": multi_crop()}, "data.images.eval_crop gives several views"),
    ],
)
def test_what_takes_one_view_refuses_more(changes, words):
    with pytest.raises(ConfigError, match=words):
        datamodule(**changes)


def test_small_views_are_not_larger_than_large_ones():
    with pytest.raises(ValueError, match=r"small.image_size 24 is above large.image_size 16"):
        MultiCrop(large=box(16, [0.5, 1.0]), num_large=2, small=box(24, [0.2, 0.5]), num_small=1)
    assert len(MultiCrop(large=box(16, [0.5, 1.0]), num_large=2, small=box(24, [0.2, 0.5]), num_small=0).views()) == 2
