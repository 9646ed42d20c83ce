"""Samples are read, converted and augmented as a function of (seed, epoch, index); what cannot be read is named."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from vitlab.data import RandomResizedCrop, ShiftedCrop, TokenBudget, WholeImage
from vitlab.data.batches.batch import Sample, UnreadableImage, collate
from vitlab.data.images import decoding
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import Loader
from vitlab.data.order.sampler import Key, TrainingOrder
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass
from vitlab.errors import DataError

SHIFTED = ShiftedCrop(image_size=8, padding=4, flip_rate=0.5, interpolation="bilinear")
JITTER = v2.ColorJitter(brightness=0.5)


def split_of(pool, **changes):
    settings = {"image_mode": None, "in_chans": 3, "crop": SHIFTED, "transform": None, "seed": 0}
    return ImageSplit(pool, np.arange(len(pool)), **settings | changes)


def noise_split(seed=0, num_samples=20, **changes):
    pixels = np.random.RandomState(0).randint(0, 256, (num_samples, 8, 8, 3), dtype=np.uint8)
    pool = ArrayPool(pixels, OneClass(np.arange(num_samples)), "noise")
    return split_of(pool, **{"transform": JITTER, "seed": seed} | changes)


def file_split(path, image_mode=None, in_chans=3):
    """One file, as it is: up to its own size a token budget changes nothing."""
    pool = FilePool([str(path)], OneClass(np.array([5])), "")
    crop = TokenBudget(patch_size=1, max_tokens=4096, enlarge=False, flip_rate=0.0, interpolation="bilinear")
    return split_of(pool, image_mode=image_mode, in_chans=in_chans, crop=crop)


def images(split, epoch=0):
    return torch.stack([split[epoch, index].image for index in range(len(split))])


def test_augmentation_is_a_function_of_seed_epoch_and_index():
    first = images(noise_split())
    torch.manual_seed(1)
    assert torch.equal(first, images(noise_split()))
    for other in (images(noise_split(), epoch=1), images(noise_split(seed=1))):
        assert (first != other).flatten(1).any(dim=1).all()


@pytest.mark.parametrize("changes", [{"transform": None}, {"crop": WholeImage(image_size=8, interpolation="bilinear")}])
def test_crop_and_transform_are_each_a_function_of_seed_epoch_index_and_view(changes):
    split, other_seed = noise_split(**changes), noise_split(seed=1, **changes)
    image, alike = split[Key(1, 3, 0)].image, [split[Key(1, 3, 0)].image, split[1, 3].image]
    assert all(torch.equal(image, other) for other in alike)
    others = [other_seed[1, 3].image, *(split[Key(1, 3, view)].image for view in range(1, 4))]
    others += [split[epoch, 3].image for epoch in (0, *range(2, 5))]
    assert len({other.numpy().tobytes() for other in [image, *others]}) > 6  # two of 162 shifts may be the same


def test_each_sample_is_augmented_in_its_own_way():
    split = noise_split()
    split.pool.pixels[:] = split.pool.pixels[0]
    assert len({image.numpy().tobytes() for image in images(split)}) == len(split)


def test_augmentation_leaves_the_global_generator_as_it_was():
    before = torch.manual_seed(5).get_state()
    images(noise_split())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_number_of_workers_changes_nothing():
    def epoch(num_workers):
        order = TrainingOrder(20, global_batch_size=8, accumulation=2, rank=0, world_size=1, seed=0, position=lambda: 1)
        settings = {"prefetch_batches": 2, "stall_timeout": 60, "device": torch.device("cpu")}
        loader = Loader(noise_split(), order, num_workers=num_workers, **settings)
        return [(b.view.numpy().tobytes(), b.target.tolist(), b.index.tolist()) for b in loader]

    assert epoch(0) == epoch(2)


def test_a_batch_is_uint8_with_its_targets_and_places():
    split = noise_split()
    samples = [split[0, 7], UnreadableImage("x.png", "no image", 5), split[0, 3]]
    batch = collate(samples, split.targets[[7, 3]].collate())
    assert batch.view.dtype == torch.uint8
    assert (batch.view.shape, batch.target.tolist(), batch.index.tolist()) == ((2, 3, 8, 8), [7, 3], [7, 3])
    assert batch.unreadable == (UnreadableImage("x.png", "no image", 5),)


def test_items_of_a_whole_batch_are_those_of_its_keys():
    split = noise_split()
    keys = [Key(2, 7), Key(2, 3), Key(2, 7, 1), Key(0, 0)]
    batch, alone = split.__getitems__(keys), [split[key] for key in keys]
    assert torch.equal(batch.view, torch.stack([sample.image for sample in alone]))
    assert (batch.target.tolist(), batch.index.tolist()) == ([7, 3, 7, 0], [7, 3, 7, 0])
    assert batch.unreadable == ()


def test_a_batch_may_have_another_image_size():
    crop = RandomResizedCrop(
        image_size=8, scale=[0.3, 1], ratio=[0.75, 1.33], method="torchvision", flip_rate=0.5, interpolation="bicubic"
    )
    split = noise_split(crop=crop, transform=None)
    batch = split.__getitems__([Key(0, index, 0, 5) for index in range(6)])
    assert batch.view.shape == (6, 3, 5, 5)
    smaller = split.replace_crop(crop.resize(5), None)
    assert torch.equal(batch.view, torch.stack([smaller[0, index].image for index in range(6)]))


def test_what_is_unreadable_in_a_batch_is_named_and_the_rest_is_as_without_it():
    class Torn(ArrayPool):
        def load(self, i):
            if i == 3:
                raise OSError("torn")
            return super().load(i)

    whole = noise_split()
    torn = split_of(Torn(whole.pool.pixels, whole.pool.targets, "noise"), transform=JITTER)
    batch = torn.__getitems__([Key(0, index) for index in (2, 3, 4)])
    assert batch.unreadable == (UnreadableImage("noise image 3", "torn", 3),)
    assert batch.index.tolist() == [2, 4]
    assert torch.equal(batch.view, torch.stack([whole[0, 2].image, whole[0, 4].image]))
    nothing = torn.__getitems__([Key(0, 3)])
    assert (nothing.views, nothing.target.tolist(), len(nothing.unreadable)) == ((), [], 1)


def test_crops_are_drawn_on_the_size_in_the_source():
    """A cache that holds smaller images gives the same part of each."""

    class Smaller(ArrayPool):
        def load(self, i):
            return np.asarray(Image.fromarray(self.pixels[i]).resize((40, 30), Image.Resampling.BOX))

        def size(self, i):
            return self.pixels.shape[1:3]

    gradient = np.stack(np.broadcast_arrays(np.linspace(0, 255, 120)[:, None], np.linspace(0, 255, 160), 0), axis=2)
    pixels = np.broadcast_to(gradient.astype(np.uint8), (8, 120, 160, 3))
    crop = RandomResizedCrop(
        image_size=8, scale=[0.3, 1], ratio=[0.75, 1.33], method="inception", flip_rate=0.5, interpolation="bilinear"
    )
    full, cached = (split_of(kind(pixels, OneClass(np.arange(8)), "wide"), crop=crop) for kind in (ArrayPool, Smaller))
    for index in range(8):
        difference = full[0, index].image.int() - cached[0, index].image.int()
        assert (
            difference.abs().max() <= 6
        )  # a box is rounded to half a pixel, and a pixel of the smaller image is 8 levels
    assert len({full[0, index].image.numpy().tobytes() for index in range(8)}) == 8


def test_a_split_keeps_places_and_samples_apart():
    split = noise_split()
    split.indices = np.array([4, 9])
    assert (split.targets.tolist()[1], split[0, 1].index, split.name(1)) == (9, 1, "noise image 9")


@pytest.mark.parametrize(
    ("stored", "colour", "image_mode", "pixel"),
    [
        ("L", 100, "RGB", [100, 100, 100]),
        ("RGB", (255, 0, 0), "L", [76]),  # ITU-R 601: 0.299 of red
        ("RGBA", (10, 20, 30, 255), "RGB", [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), "RGB", [255, 255, 255]),  # transparency is laid on white
        ("RGBA", (10, 20, 30, 51), "RGB", [206, 208, 210]),
        ("P", 7, "RGB", [1, 2, 3]),  # the palette's seventh colour
        ("LA", (9, 255), "L", [9]),
        ("1", 1, "L", [255]),
        ("CMYK", (255, 0, 0, 0), "RGB", [0, 255, 255]),
        ("L", 100, None, [100]),
        ("RGB", (1, 2, 3), None, [1, 2, 3]),
    ],
)
def test_image_mode_converts_whatever_is_stored(tmp_path, stored, colour, image_mode, pixel):
    image = Image.new(stored, (4, 4), colour)
    if stored == "P":
        image.putpalette([0] * 21 + [1, 2, 3])
    image.save(tmp_path / "image.tif" if stored == "CMYK" else tmp_path / "image.png")
    split = file_split(next(tmp_path.iterdir()), image_mode, len(pixel))
    sample = split[0, 0]
    assert sample.image.dtype == torch.uint8
    assert sample.image[:, 2, 2].tolist() == pixel
    assert split.targets.tolist() == [5]


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "gone"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, damage):
    path = tmp_path / ("image.jpg" if damage == "truncated" else "image.png")
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    if damage == "gone":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes({"truncated": content[: len(content) // 2], "text": b"not an image", "empty": b""}[damage])
    bad = file_split(path)[0, 0]
    assert isinstance(bad, UnreadableImage)
    assert bad.name == str(path)
    assert bad.reason


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize(("size", "kind"), [(9, Sample), (12, UnreadableImage), (20, UnreadableImage)])
def test_a_decompression_bomb_is_unreadable(tmp_path, monkeypatch, size, kind, suffix):
    """Pillow warns from its limit on, and raises from twice the limit on; here nothing above the limit is taken."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    monkeypatch.setattr(decoding, "MOST_PIXELS", 100)
    Image.new("RGB", (size, size)).save(tmp_path / f"image.{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        assert isinstance(file_split(tmp_path / f"image.{suffix}")[0, 0], kind)


def test_other_channels_than_the_config_says_are_an_error_that_names_the_file(tmp_path):
    Image.new("RGBA", (4, 4)).save(tmp_path / "image.png")
    with pytest.raises(DataError, match=r"image\.png has 4 channels, but data\.in_chans is 3.*data\.images\.mode"):
        file_split(tmp_path / "image.png")[0, 0]
