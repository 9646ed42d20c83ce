"""Samples are read, converted and augmented as a function of (seed, epoch, index); what cannot be read is named."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from vitlab.data.batch import Sample, Unreadable, collate
from vitlab.data.dataset import ImageSplit
from vitlab.data.folder import FilePool
from vitlab.data.sampler import TrainingOrder
from vitlab.data.source import ArrayPool
from vitlab.errors import DataError

AUGMENTATION = v2.Compose([v2.RandomCrop(8, padding=4), v2.RandomHorizontalFlip(), v2.ColorJitter(brightness=0.5)])
ORIENTATION = 0x0112  # EXIF


def noise_split(seed=0, num_samples=20):
    pixels = np.random.RandomState(0).randint(0, 256, (num_samples, 8, 8, 3), dtype=np.uint8)
    pool = ArrayPool(pixels, np.arange(num_samples), "noise")
    return ImageSplit(pool, np.arange(num_samples), image_mode=None, in_chans=3, transform=AUGMENTATION, seed=seed)


def file_split(path, image_mode=None, in_chans=3):
    pool = FilePool(np.array([str(path)]), np.array([5]), "")
    return ImageSplit(pool, np.array([0]), image_mode=image_mode, in_chans=in_chans, transform=v2.Identity(), seed=0)


def images(split, epoch=0):
    return torch.stack([split[epoch, index].image for index in range(len(split))])


def test_augmentation_is_a_function_of_seed_epoch_and_index():
    first = images(noise_split())
    torch.manual_seed(1)
    assert torch.equal(first, images(noise_split()))
    for other in (images(noise_split(), epoch=1), images(noise_split(seed=1))):
        assert (first != other).flatten(1).any(dim=1).all()


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
        loader = DataLoader(noise_split(), batch_sampler=order, num_workers=num_workers, collate_fn=collate)
        return [(b.inputs.numpy().tobytes(), b.target.tolist(), b.index.tolist()) for b in loader]

    assert epoch(0) == epoch(2)


def test_a_batch_is_uint8_with_its_targets_and_places():
    split = noise_split()
    batch = collate([split[0, 7], Unreadable("x.png", "no image"), split[0, 3]])
    assert batch.inputs.dtype == torch.uint8
    assert (batch.inputs.shape, batch.target.tolist(), batch.index.tolist()) == ((2, 3, 8, 8), [7, 3], [7, 3])
    assert batch.unreadable == ("x.png: no image",)


def test_a_split_keeps_places_and_samples_apart():
    split = noise_split()
    split.indices = np.array([4, 9])
    assert (split[0, 1].target, split[0, 1].index, split.name(1)) == (9, 1, "noise image 9")


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_exif_orientation_is_honoured(tmp_path, suffix, orientation, turns):
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:8, :16] = 255  # the top left quarter is white
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(pixels).save(tmp_path / f"image.{suffix}", exif=exif)
    image = file_split(tmp_path / f"image.{suffix}")[0, 0].image
    upright = torch.from_numpy(np.rot90(pixels, turns).copy()).permute(2, 0, 1)
    assert image.shape == upright.shape
    assert ((image.int() - upright.int()).abs() < 32).all()


@pytest.mark.parametrize(
    ("stored", "colour", "image_mode", "pixel"),
    [
        ("L", 100, "RGB", [100, 100, 100]),
        ("RGB", (255, 0, 0), "L", [76]),  # ITU-R 601: 0.299 of red
        ("RGBA", (10, 20, 30, 40), "RGB", [10, 20, 30]),
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
    assert sample.target == 5


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
    assert isinstance(bad, Unreadable)
    assert bad.name == str(path)
    assert bad.reason


@pytest.mark.parametrize(("size", "kind"), [(9, Sample), (12, Unreadable), (20, Unreadable)])
def test_a_decompression_bomb_is_unreadable(tmp_path, monkeypatch, size, kind):
    """Pillow warns from its limit on, and raises from twice the limit on."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("RGB", (size, size)).save(tmp_path / "image.png")
    assert isinstance(file_split(tmp_path / "image.png")[0, 0], kind)


def test_other_channels_than_the_config_says_are_an_error_that_names_the_file(tmp_path):
    Image.new("RGBA", (4, 4)).save(tmp_path / "image.png")
    with pytest.raises(DataError, match=r"image\.png has 4 channels, and data\.in_chans is 3.*data\.image_mode"):
        file_split(tmp_path / "image.png")[0, 0]
