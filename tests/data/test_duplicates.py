"""Equal images are found, within and between splits; a start is not delayed for it. What a survey counts is exact."""

from io import BytesIO

import numpy as np
import pytest
from pictures import CROP, in_memory, noise, split_of
from PIL import Image

from vitlab.data import duplicates
from vitlab.data.duplicates import examine_images, group_equal, join_findings, overlap
from vitlab.data.images.moments import mean_and_std
from vitlab.data.pools.file_pool import FilePool
from vitlab.data.pools.pool import Pool
from vitlab.data.targets import OneClass, Texts
from vitlab.run.printing.hints import sentence

NOISE = noise(40, 8, 8, 3)


def files(folder, pixels):
    folder.mkdir()
    paths = [folder / f"{k}.png" for k in range(len(pixels))]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    return FilePool([str(path) for path in paths], OneClass(np.zeros(len(paths), np.int64)), "")


@pytest.fixture
def copied():
    """Image 2 three times in the first pool and once in the second, image 30 in both."""
    first, second = NOISE[:20].copy(), NOISE[20:].copy()
    first[7] = first[15] = second[1] = first[2]
    first[18] = second[10]
    return first, second


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_equal_images_in_two_splits_are_found(kind, copied, tmp_path):
    if kind == "memory":
        first, second = map(in_memory, copied)
    else:
        first, second = files(tmp_path / "a", copied[0]), files(tmp_path / "b", copied[1])
    train, val = [i for i in range(20) if i not in (3, 15)], [3, 15]
    found = overlap({"train": split_of(first, train), "val": split_of(first, val), "test": split_of(second)})
    assert found.num_images == 40
    assert found.groups == [
        [("train", 2), ("train", 6), ("val", 1), ("test", 1)],
        [("train", 16), ("test", 10)],
    ]
    assert found.counts() == {("train", "val"): 1, ("train", "test"): 2, ("val", "test"): 1}
    assert "1 of val are in train, 2 of test are in train" in sentence(found, surveyed=True)


def test_pixels_of_one_sum_are_not_taken_for_equal():
    pixels = NOISE[:4].copy()
    pixels[2] = pixels[0][::-1]
    found = overlap({"train": split_of(in_memory(pixels[:2])), "test": split_of(in_memory(pixels[2:]))})
    assert found.groups == []
    assert sentence(found, surveyed=True) == "none: no image of 4 is in two splits"


def test_a_start_is_not_delayed(copied, tmp_path, monkeypatch):
    first, second = files(tmp_path / "a", copied[0]), files(tmp_path / "b", copied[1])
    splits = {"train": split_of(first), "test": split_of(second)}
    assert "40 files were not compared within 0 s" in overlap(splits, seconds=0).unchecked
    monkeypatch.setattr(duplicates, "MOST_FILES", 30)
    monkeypatch.setattr(Pool, "load", lambda *args: pytest.fail("no file is read"))
    assert "40 files would delay the start; vitlab survey with" in sentence(overlap(splits), surveyed=True)
    asked = Texts(["a"] * 40, images=np.repeat(np.arange(20), 2))  # two questions about each image
    twice = FilePool([first.name(i // 2) for i in range(40)], asked, "")
    assert "20 files were not compared" in overlap({"train": split_of(twice)}, seconds=0).unchecked
    monkeypatch.setattr(duplicates, "MOST_BYTES", 100)
    assert "pixels would delay the start" in overlap({"train": split_of(in_memory(NOISE))}).unchecked
    remote = Pool(OneClass(np.zeros(3, np.int64)), "")
    assert "archives" in overlap({"train": split_of(remote), "test": split_of(remote)}).unchecked


def test_what_is_missing_or_damaged_is_passed_over(copied, tmp_path):
    first, second = files(tmp_path / "a", copied[0]), files(tmp_path / "b", copied[1])
    (tmp_path / "a" / "2.png").unlink()
    (tmp_path / "b" / "5.png").unlink()
    assert len(overlap({"train": split_of(first), "test": split_of(second)}).groups) == 2


def test_repeated_content_is_grouped_in_the_order_of_the_splits():
    digests = {"train": np.array([5, 7, 0, 5, 9], np.uint64), "test": np.array([7, 0, 3], np.uint64)}
    assert group_equal(digests) == [[("train", 0), ("train", 3)], [("train", 1), ("test", 0)]]
    assert group_equal({"train": np.array([0], np.uint64)}) == []


def test_findings_are_those_of_the_images_that_can_be_read(tmp_path):
    shapes = [(8, 8), (8, 16), (16, 8), (8, 8)]
    stored = []
    for k, (height, width) in enumerate(shapes):
        buffer = BytesIO()
        mode = "L" if k == 1 else "RGB"
        Image.fromarray(np.full((height, width, 3), 20 * k, np.uint8)).convert(mode).save(buffer, "png")
        stored.append(buffer.getvalue())
    stored.insert(2, b"no image")
    stored.insert(4, stored[0][:-30])  # cut off
    pool = FilePool([str(tmp_path / f"{k}.png") for k in range(7)], OneClass(np.zeros(7, np.int64)), "")
    for k, content_of in enumerate(stored):  # the seventh is missing
        (tmp_path / f"{k}.png").write_bytes(content_of)
    found = join_findings([examine_images(split_of(pool), CROP, piece) for piece in (range(4), range(4, 7))])
    assert found.sizes.tolist() == [[8, 8], [8, 16], [0, 0], [16, 8], [0, 0], [8, 8], [0, 0]]
    assert found.modes == ["RGB", "L", "?", "RGB", "?", "RGB", "?"]
    assert found.unreadable.keys() == {2, 4, 6}
    assert found.moments.tolist() == [[256] * 3, [64 * 120] * 3, [64 * (400 + 1600 + 3600)] * 3]
    mean, std = mean_and_std(found.moments)
    values = np.array([0, 20, 40, 60]) / 255
    assert mean == pytest.approx([values.mean()] * 3)
    assert std == pytest.approx([values.std()] * 3)
    odd = examine_images(split_of(in_memory(NOISE[..., 0]), image_mode=None), CROP, range(2))
    assert odd.unreadable[0] == "it has 1 channels, but data.in_chans is 3"


def test_images_that_are_computed_are_not_said_to_lie_anywhere():
    from vitlab.data import SyntheticTones

    pool = SyntheticTones(num_samples=48, num_roots=2, image_size=24, noise=0.5).open()["train"]
    assert overlap({"train": split_of(pool)}).unchecked == "the images are computed when they are asked for"
