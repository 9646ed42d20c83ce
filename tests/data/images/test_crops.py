"""What part of an image a crop takes: torchvision's and TensorFlow's, drawn from counted numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import noise
from PIL import Image
from scipy.stats import ks_2samp, kstest
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from vitlab.data import CenterCrop, LineCrop, RandomResizedCrop, ShiftedCrop, TokenBudget, WholeImage
from vitlab.data.loading.dataset import ImageSplit, crop_for_evaluation
from vitlab.data.order.sampler import Key
from vitlab.data.pools.pool import ArrayPool
from vitlab.data.targets import OneClass
from vitlab.seeding import draw_numbers

METHODS = ("torchvision", "inception")
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")
sides = st.integers(1, 70)


def as_tensor(image):
    return F.pil_to_tensor(image)


def random_crop(**changes):
    settings = {"image_size": 8, "scale": [0.08, 1.0], "ratio": [3 / 4, 4 / 3], "method": "torchvision"}
    return RandomResizedCrop(**settings | {"flip_rate": 0.5, "interpolation": "bilinear"} | changes)


def budget(**changes):
    settings = {"patch_size": 4, "max_tokens": 16, "enlarge": False, "flip_rate": 0.0, "interpolation": "bilinear"}
    return TokenBudget(**settings | changes)


def drawn(crop, size, count, stream="test"):
    """Crops of `count` images of one size."""
    numbers = draw_numbers(stream, np.arange(count)[:, None], crop.draws)
    return crop(np.tile(np.array(size), (count, 1)), numbers)


# -- crops without chance, bit for bit those of torchvision on Pillow images


@settings(deadline=None, max_examples=150)
@given(
    sides, sides, st.integers(1, 40), st.integers(0, 12), st.sampled_from(INTERPOLATIONS), st.sampled_from([(), (3,)])
)
def test_a_central_crop_is_torchvisions_resize_and_center_crop(
    height, width, image_size, more, interpolation, channels
):
    pixels = noise(height, width, *channels)
    resize_size = image_size + more
    if max(height, width) / min(height, width) * (resize_size / image_size) ** 2 > 60:
        return  # of such a strip only the middle is resized
    crop = CenterCrop(image_size=image_size, resize_size=resize_size, interpolation=interpolation)
    resize = v2.Resize(resize_size, interpolation=v2.InterpolationMode(interpolation))
    expected = v2.CenterCrop(image_size)(resize(Image.fromarray(pixels)))
    assert torch.equal(crop_for_evaluation(pixels, crop, None), as_tensor(expected))


@pytest.mark.parametrize("size", [(375, 500), (500, 333), (481, 321), (224, 224), (255, 257), (1200, 300), (97, 640)])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS[:2])
@pytest.mark.parametrize(("image_size", "resize_size"), [(224, 256), (160, 183), (224, 224), (99, 100)])
def test_a_central_crop_of_a_photos_size_is_torchvisions(size, interpolation, image_size, resize_size):
    pixels = noise(*size, 3)
    crop = CenterCrop(image_size=image_size, resize_size=resize_size, interpolation=interpolation)
    resize = v2.Resize(resize_size, interpolation=v2.InterpolationMode(interpolation))
    expected = v2.CenterCrop(image_size)(resize(Image.fromarray(pixels)))
    assert torch.equal(crop_for_evaluation(pixels, crop, None), as_tensor(expected))


@pytest.mark.parametrize("size", [(3, 2000), (2000, 3), (1, 1), (1, 500)])
def test_a_central_crop_of_a_long_strip_is_its_middle(size):
    pixels = np.broadcast_to(np.linspace(0, 255, max(size)).reshape([-1, 1] if size[0] > size[1] else [1, -1]), size)
    image = crop_for_evaluation(
        pixels.astype(np.uint8), CenterCrop(image_size=32, resize_size=36, interpolation="bicubic"), None
    )
    assert image.shape == (1, 32, 32)
    assert max(size) == 1 or (image.float() - 127).abs().max() < 3


@settings(deadline=None, max_examples=100)
@given(sides, sides, st.integers(1, 40), st.sampled_from(INTERPOLATIONS), st.sampled_from([(), (3,)]))
def test_the_whole_image_is_torchvisions_resize_to_a_square(height, width, image_size, interpolation, channels):
    pixels = noise(height, width, *channels)
    crop = WholeImage(image_size=image_size, interpolation=interpolation)
    resize = v2.Resize([image_size, image_size], interpolation=v2.InterpolationMode(interpolation))
    assert torch.equal(crop_for_evaluation(pixels, crop, None), as_tensor(resize(Image.fromarray(pixels))))


def test_at_another_size_everything_is_in_proportion():
    crop = CenterCrop(image_size=224, resize_size=256, interpolation="bicubic")
    smaller = crop.resize(112)
    assert (smaller.image_size, smaller.resize_size, smaller.interpolation) == (112, 128, "bicubic")
    assert (crop.image_size, crop.resize_size) == (224, 256)
    boxes, others = (each(np.array([[300, 500]]), None).boxes for each in (crop, smaller))
    assert abs(boxes - others).max() < 500 / 128 / 2  # half a pixel of the smaller result
    other = random_crop(image_size=16)
    for k, box in enumerate(drawn(other, (60, 80), 50).boxes):
        assert np.array_equal(box, drawn(other.resize(4), (60, 80), 50).boxes[k])
    assert set(drawn(other.resize(4), (60, 80), 50).sizes.ravel()) == {4}
    assert budget(patch_size=4, max_tokens=16).resize(8).max_tokens == 4


# -- shifts


@pytest.mark.parametrize("padding", [0, 2, 7])
def test_a_shifted_crop_is_torchvisions_crop_of_the_padded_image(padding):
    crop = ShiftedCrop(image_size=8, padding=padding, flip_rate=0.5, interpolation="bilinear")
    pixels = noise(8, 8, 3)
    split = ImageSplit(
        ArrayPool(pixels[None], OneClass(np.array([0])), ""),
        np.array([0]),
        image_mode=None,
        in_chans=3,
        crop=crop,
        transform=None,
        seed=0,
    )
    padded = F.pad(torch.from_numpy(pixels).permute(2, 0, 1), padding)
    keys = [Key(epoch, 0) for epoch in range(100)]
    crops = crop(np.full((100, 2), 8), split.numbers(keys, crop.draws))
    for key, (down, right), flip in zip(keys, crops.shifts, crops.flips, strict=True):
        expected = F.crop(padded, padding - down, padding - right, 8, 8)
        assert torch.equal(split[key].image, expected.flip(-1) if flip else expected)
    assert (abs(crops.shifts).max(), len(set(crops.flips))) == (padding, 2)


def test_a_shift_is_in_proportion():
    crop = ShiftedCrop(image_size=32, padding=4, flip_rate=0.0, interpolation="bilinear")
    assert (crop.resize(16).padding, crop.resize(2).padding, crop.padding) == (2, 0, 4)


def test_all_shifts_are_equally_likely_and_half_is_flipped():
    crops = drawn(ShiftedCrop(image_size=32, padding=4, flip_rate=0.5, interpolation="bilinear"), (32, 32), 8100)
    counts = np.bincount(((crops.shifts + 4) @ [9, 1]).astype(int), minlength=81)
    assert len(counts) == 81
    assert counts.min() > 60
    assert counts.max() < 145
    assert crops.flips.mean() == pytest.approx(0.5, abs=0.03)
    for rate in (0.0, 1.0):
        crop = ShiftedCrop(image_size=32, padding=4, flip_rate=rate, interpolation="bilinear")
        assert set(drawn(crop, (32, 32), 100).flips) == {bool(rate)}


# -- random boxes


def described(boxes):
    """Area, logarithm of the ratio, and the place (between 0 and 1) of boxes, (5, B)."""
    left, top, right, bottom = np.asarray(boxes, dtype=float).T
    return np.stack(
        [(right - left) * (bottom - top), np.log((right - left) / (bottom - top)), left + right, top + bottom]
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 600), st.integers(1, 600), st.sampled_from(METHODS))
def test_boxes_are_whole_pixels_inside_the_image(height, width, method):
    boxes = drawn(random_crop(method=method), (height, width), 50).boxes
    assert np.array_equal(boxes, np.round(boxes))
    assert boxes.min() >= 0
    assert (boxes[:, 2] <= width).all()
    assert (boxes[:, 3] <= height).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(375, 500), (500, 375), (640, 640)])
@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.08, 1), (3 / 4, 4 / 3)), ((0.5, 0.6), (0.9, 1.1)), ((1, 1), (0.5, 2))]
)
def test_area_and_ratio_are_in_their_ranges(method, size, scale, ratio):
    area, shape, *_ = described(drawn(random_crop(method=method, scale=scale, ratio=ratio), size, 1000).boxes)
    whole = area == size[0] * size[1]  # where nothing fits
    area, shape = area[~whole] / (size[0] * size[1]), np.exp(shape[~whole])
    assert scale[0] * 0.98 <= area.min(initial=1)
    assert area.max(initial=0) <= scale[1] * 1.02
    assert ratio[0] * 0.98 <= shape.min(initial=ratio[0])
    assert shape.max(initial=0) <= ratio[1] * 1.02


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1, 500), {(1, 1)}), ((500, 1), {(1, 1)}), ((3, 1000), {(3, 4)}), ((1000, 3), {(4, 3)})],
)
def test_where_nothing_fits_torchvision_takes_the_largest_central_box(size, expected):
    height, width = size
    crops = drawn(random_crop(scale=[0.5, 1.0]), size, 20).boxes
    for left, top, right, bottom in crops.tolist():
        assert {(bottom - top, right - left)} == expected
        assert (left, top) == ((width - (right - left)) // 2, (height - (bottom - top)) // 2)
    resized = v2.RandomResizedCrop(8, scale=(0.5, 1.0)).make_params([Image.new("L", (width, height))])
    assert [resized["left"], resized["top"]] == crops[0, :2].tolist()
    assert (resized["height"], resized["width"]) in expected


@pytest.mark.parametrize("size", [(1, 500), (500, 1), (3, 1000), (1000, 3)])
def test_where_nothing_fits_inception_takes_the_whole_image(size):
    boxes = drawn(random_crop(method="inception", scale=[0.5, 1.0]), size, 20).boxes
    assert (boxes == [0, 0, size[1], size[0]]).all()


SHAPES = [((375, 500), (0.08, 1.0)), ((500, 333), (0.05, 1.0)), ((64, 64), (0.25, 1.0)), ((60, 200), (0.4, 1.0))]


@pytest.mark.parametrize(("size", "scale"), SHAPES)
def test_the_boxes_are_distributed_as_torchvisions(size, scale):
    torch.manual_seed(0)
    reference, image = v2.RandomResizedCrop(8, scale=scale), [Image.new("L", size[::-1])]
    params = [reference.make_params(image) for _ in range(3000)]
    theirs = [(p["left"], p["top"], p["left"] + p["width"], p["top"] + p["height"]) for p in params]
    ours = drawn(random_crop(scale=scale), size, 3000).boxes
    for a, b in zip(described(ours), described(theirs), strict=True):
        assert ks_2samp(a, b, method="asymp").pvalue > 1e-3


def tensorflow_boxes(size, scale, ratio, count):
    """TensorFlow's sample_distorted_bounding_box, with the whole image as its bounding box and nothing of it that must
    be covered: of at most ten attempts the first that fits, else the whole image."""
    random = np.random.RandomState(1)
    height, width = size
    boxes = []
    for _ in range(count):
        found = (0, 0, width, height)
        for _ in range(10):
            box = generate_random_crop(width, height, scale, random.uniform(*ratio), random)
            if box is not None:
                found = box
                break
        boxes.append(found)
    return boxes


def generate_random_crop(width, height, scale, ratio, random):
    """One attempt: the height is drawn evenly between those of the smallest and the largest area of this ratio."""
    min_area, max_area = scale[0] * width * height, scale[1] * width * height
    crop_height = round(math.sqrt(min_area / ratio))
    max_height = round(math.sqrt(max_area / ratio))
    if round(max_height * ratio) > width:  # the largest whose rounded width is still inside
        max_height = int((width + 0.5 - 1e-7) / ratio)
        if round(max_height * ratio) > width:
            max_height -= 1
    max_height = min(max_height, height)
    crop_height = min(crop_height, max_height)
    if crop_height < max_height:
        crop_height += random.randint(max_height - crop_height + 1)
    crop_width = round(crop_height * ratio)
    if crop_width * crop_height < min_area:
        crop_height += 1
        crop_width = round(crop_height * ratio)
    if crop_width * crop_height > max_area:
        crop_height -= 1
        crop_width = round(crop_height * ratio)
    area = crop_width * crop_height
    if not (min_area <= area <= max_area and 0 < crop_width <= width and 0 < crop_height <= height):
        return None
    top = random.randint(height - crop_height) if crop_height < height else 0
    left = random.randint(width - crop_width) if crop_width < width else 0
    return left, top, left + crop_width, top + crop_height


@pytest.mark.parametrize(("size", "scale"), SHAPES)
def test_the_boxes_are_distributed_as_tensorflows(size, scale):
    theirs = tensorflow_boxes(size, scale, (0.75, 1.33), 3000)
    ours = drawn(random_crop(method="inception", scale=scale, ratio=[0.75, 1.33]), size, 3000).boxes
    for a, b in zip(described(ours), described(theirs), strict=True):
        assert ks_2samp(a, b, method="asymp").pvalue > 1e-3


def test_the_two_methods_are_told_apart_by_these_tests():
    ours, other = (described(drawn(random_crop(method=m), (375, 500), 3000).boxes)[0] for m in METHODS)
    assert ks_2samp(ours, other).pvalue < 1e-9
    assert other.mean() < 0.9 * ours.mean()  # the inception way takes small boxes more often


@pytest.mark.parametrize("method", METHODS)
def test_the_place_is_even_and_flips_have_nothing_to_do_with_it(method):
    crops = drawn(random_crop(method=method, scale=[0.25, 0.25], ratio=[1, 1]), (2000, 2000), 4000)
    for place in (crops.boxes[:, 0], crops.boxes[:, 1]):
        assert kstest(place / 1001, "uniform").pvalue > 1e-3
        assert ks_2samp(place[crops.flips], place[~crops.flips]).pvalue > 1e-3
    assert crops.flips.mean() == pytest.approx(0.5, abs=0.04)


# -- token budgets


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 900), st.integers(1, 900), st.sampled_from([1, 4, 14, 16]), st.integers(1, 300), st.booleans())
def test_a_budget_is_kept_in_whole_patches_of_the_images_shape(height, width, patch_size, max_tokens, enlarge):
    crop = budget(patch_size=patch_size, max_tokens=max_tokens, enlarge=enlarge)
    crops = drawn(crop, (height, width), 1)
    ((h, w),) = crops.sizes.tolist()
    assert h % patch_size == w % patch_size == 0
    rows, columns = h // patch_size, w // patch_size
    assert 1 <= rows * columns <= max_tokens
    assert crops.boxes.tolist() == [[0, 0, width, height]]
    if not enlarge:
        assert h <= max(height, patch_size)
        assert w <= max(width, patch_size)
    if min(rows, columns) > 1:  # else the shape cannot be kept: a strip, or an image of one patch
        factor = math.sqrt(max_tokens * patch_size**2 / (height * width))
        factor = factor if enlarge else min(factor, 1)
        for side, found in ((height, rows), (width, columns)):
            assert -1e-6 <= side * factor / patch_size - found < 1


@pytest.mark.parametrize(
    ("size", "grid"), [((2, 1600), (1, 64)), ((1600, 2), (64, 1)), ((1, 1), (1, 1)), ((40, 5000), (1, 64))]
)
def test_a_long_strip_is_one_patch_wide(size, grid):
    assert drawn(budget(patch_size=16, max_tokens=64), size, 1).sizes.tolist() == [[16 * grid[0], 16 * grid[1]]]


def test_an_image_within_the_budget_is_cut_to_whole_patches_and_enlarged_only_if_asked():
    assert drawn(budget(), (9, 13), 1).sizes.tolist() == [[8, 12]]
    assert drawn(budget(enlarge=True), (8, 8), 1).sizes.tolist() == [[16, 16]]
    assert drawn(budget(max_tokens=10), (80, 80), 1).sizes.tolist() == [[12, 12]]


def test_a_budgets_image_is_pillows_resize():
    pixels = noise(37, 61, 3)
    image = crop_for_evaluation(pixels, budget(), None)
    height, width = image.shape[1:]
    assert torch.equal(image, as_tensor(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)))


# -- refusals


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WholeImage(image_size=8, interpolation="cubic"), "interpolation 'cubic' is not one of: .*bicubic"),
        (lambda: CenterCrop(image_size=8, resize_size=7, interpolation="bicubic"), "resize_size 7 .* crop of 8"),
        (lambda: ShiftedCrop(image_size=8, padding=8, flip_rate=0, interpolation="bicubic"), "padding 8"),
        (lambda: ShiftedCrop(image_size=8, padding=-1, flip_rate=0, interpolation="bicubic"), "padding -1"),
        (lambda: ShiftedCrop(image_size=8, padding=1, flip_rate=1.5, interpolation="bicubic"), "flip_rate 1.5"),
        (lambda: random_crop(scale=[0.5]), r"scale \[0.5\] is not a range"),
        (lambda: random_crop(scale=[0, 1]), r"scale \[0, 1\] is not a range"),
        (lambda: random_crop(ratio=[2, 1]), r"ratio \[2, 1\] is not a range"),
        (lambda: random_crop(scale=[0.5, 1.2]), r"scale \[0.5, 1.2\] is more than the whole image"),
        (lambda: random_crop(method="tf"), "method 'tf' .* torchvision, inception"),
        (lambda: random_crop(flip_rate=-0.1), "flip_rate -0.1"),
        (lambda: budget(patch_size=None), "choose a model with a patch_size"),
    ],
)
def test_a_crop_that_is_none_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# -- lines


def test_a_line_has_one_height_and_its_own_width():
    crop = LineCrop(image_size=16, patch_size=8, max_width=64, interpolation="bilinear")
    sizes = np.array([(16, 40), (32, 80), (16, 43), (8, 8), (64, 8), (16, 2000)])
    crops = crop(sizes, np.ones((6, 0)))
    assert crops.sizes.tolist() == [[16, 40], [16, 40], [16, 40], [16, 16], [16, 8], [16, 64]]
    assert crops.boxes[:, 2:].tolist() == sizes[:, ::-1].tolist()
    for sizes, sentence in (({"image_size": 12}, "image_size 12 is"), ({"max_width": 4}, "max_width 4 is")):
        with pytest.raises(ValueError, match=f"{sentence} not a multiple of patch_size 8"):
            LineCrop(**{"image_size": 16, "patch_size": 8, "max_width": 64, "interpolation": "bilinear"} | sizes)
