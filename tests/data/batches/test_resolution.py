"""The size of training images is a function of the step, in the shares of a run that the schedule states."""

import pytest

from vitlab.data import ProgressiveResolution


def resolution(**changes):
    return ProgressiveResolution(**{"image_size": 224, "patch_size": 16, "scales": [0.5], "until": [0.5]} | changes)


def sizes_of(num_steps, **schedule):
    return [resolution(**schedule).image_size(step, num_steps) for step in range(num_steps)]


def test_each_size_lasts_until_its_share_of_the_steps():
    assert sizes_of(10, scales=[0.43, 0.57], until=[0.3, 0.8]) == [96] * 3 + [128] * 5 + [0] * 2


def test_the_datas_own_size_comes_last_and_always_without_scales():
    assert sizes_of(1000, until=[0.999])[-2:] == [112, 0]
    assert sizes_of(4, scales=[], until=[]) == [0] * 4


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 1001])
def test_sizes_come_in_order_and_keep_their_shares(num_steps):
    sizes = sizes_of(num_steps, scales=[0.25, 0.5, 0.75], until=[0.25, 0.5, 0.75])
    order = [size or 224 for size in sizes]
    assert order == sorted(order)
    assert all(abs(order.count(size) - num_steps / 4) <= 1 for size in (64, 112, 160, 224))


def test_sizes_may_fall_and_a_step_behind_the_end_has_the_datas_own():
    falling = resolution(scales=[0.75, 0.5], until=[0.5, 0.75])
    assert [falling.image_size(step, 8) for step in (0, 4, 6, 8, 100)] == [160, 112, 0, 0, 0]


@pytest.mark.parametrize("patch_size", [1, 14, 16, 32])
@pytest.mark.parametrize("scale", [0.01, 0.3, 0.5, 0.71, 0.99])
def test_sizes_are_whole_patches_one_at_least(patch_size, scale):
    size = resolution(patch_size=patch_size, scales=[scale]).image_size(0, 10)
    assert size > 0
    assert size % patch_size == 0
    assert abs(size - 224 * scale) <= max(patch_size / 2, patch_size - 224 * scale)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patch_size": None}, "need a model with a patch_size"),
        ({"scales": [0.5, 0.7]}, r"resolution.until \[0.5\] .* resolution.scales \[0.5, 0.7\]"),
        ({"until": [0.5, 0.7]}, "growing between 0 and 1"),
        ({"scales": [0.5, 0.7], "until": [0.5, 0.5]}, "growing between 0 and 1"),
        ({"scales": [0.5, 0.7], "until": [0.7, 0.5]}, "growing between 0 and 1"),
        ({"until": [0.0]}, "growing between 0 and 1"),
        ({"until": [1.0]}, "growing between 0 and 1"),
        ({"until": [-0.1]}, "growing between 0 and 1"),
        ({"scales": [0.0]}, "a value that is not between 0 and 1"),
        ({"scales": [1.0]}, "a value that is not between 0 and 1"),
    ],
)
def test_a_schedule_that_is_none_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        resolution(**changes)
