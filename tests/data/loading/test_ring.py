"""Batches in a worker's own memory are those of the split, and hold while the next one is fetched."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.data import ShiftedCrop, TokenBudget
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import Loader
from vitlab.data.loading.ring import BatchesInRing
from vitlab.data.order.sampler import Key, TrainingOrder
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass

SHIFTED = ShiftedCrop(image_size=8, padding=2, flip_rate=0.5, interpolation="bilinear")


def split_of(pool, crop):
    return ImageSplit(pool, np.arange(len(pool)), image_mode="RGB", in_chans=3, crop=crop, transform=None, seed=0)


@pytest.fixture
def noise():
    pixels = np.random.RandomState(0).randint(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    return split_of(ArrayPool(pixels, OneClass(np.arange(50)), "noise"), SHIFTED)


def loader(split, num_workers, batch_bytes, position=0, ready=1):
    order = TrainingOrder(
        len(split), global_batch_size=4, accumulation=1, rank=0, world_size=1, seed=0, position=lambda: position
    )
    ring = BatchesInRing(split, num_workers=num_workers, ready=ready, batch_bytes=batch_bytes)
    return order, Loader(
        ring,
        order,
        num_workers=num_workers,
        prefetch_batches=ready,
        stall_timeout=60,
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("batch_bytes", [4 * 3 * 64, 100], ids=["in the ring", "too large for it"])
def test_batches_are_those_of_the_split_and_hold_for_one_more(noise, num_workers, batch_bytes):
    order, batches = loader(noise, num_workers, batch_bytes)
    for _ in range(2):  # the workers live on
        expected = [noise.__getitems__(keys) for keys in order]
        before, count = None, 0
        for batch, right in zip(batches, expected, strict=True):
            assert torch.equal(batch.view, right.view)
            assert batch.index.tolist() == right.index.tolist()
            if before is not None:
                assert torch.equal(before.view, expected[count - 1].view)
            before, count = batch, count + 1
        assert count == 12


def test_an_epoch_that_is_left_leaves_nothing_behind(noise):
    order, batches = loader(noise, 2, 4 * 3 * 64, ready=2)
    for batch in batches:
        if batch.index.tolist() == [key.index for key in list(order)[2]]:
            break
    first = [noise.__getitems__(keys).view for keys in order]
    assert all(torch.equal(batch.view, right) for batch, right in zip(batches, first, strict=True))


def test_images_of_different_sizes(tmp_path):
    random = np.random.RandomState(0)
    for i in range(8):
        size = (int(random.randint(8, 40)), int(random.randint(8, 40)))
        Image.fromarray(random.randint(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    paths = np.array([str(tmp_path / f"{i}.png") for i in range(8)])
    crop = TokenBudget(patch_size=4, max_tokens=16, enlarge=False, flip_rate=0.5, interpolation="bicubic")
    split = split_of(FilePool(paths, OneClass(np.arange(8)), ""), crop)
    order, batches = loader(split, 2, 4 * 16 * 48)
    for batch, keys in zip(batches, order, strict=True):
        right = split.__getitems__([Key(*key) for key in keys])
        assert torch.equal(batch.view.inputs, right.view.inputs)
        assert batch.view.grid.grids == right.view.grid.grids
        assert torch.equal(batch.view.grid.mask, right.view.grid.mask)
