"""Tables and kernels from one size to another, beside timm's and FlexiViT's own words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from timm.models._manipulate import adapt_input_conv

from vitlab.layers import resample
from vitlab.weights.resize import TIMM, Interpolation, resize_channels, resize_kernel, square

SIDES = st.integers(2, 9)


@settings(max_examples=30, deadline=None)
@given(old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES), seed=st.integers(0, 99))
def test_tables_are_timms(old, new, seed):
    table = torch.randn(1, old[0] * old[1], 8, generator=torch.Generator().manual_seed(seed))
    expected = resample_abs_pos_embed(table, list(new), list(old), num_prefix_tokens=0)
    torch.testing.assert_close(TIMM.table(table, old, new), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(resample(table, old, new), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("how", [TIMM, Interpolation("bilinear", antialias=False), Interpolation(align_corners=True)])
def test_the_same_grid_changes_nothing(how):
    table = torch.randn(1, 12, 5)
    assert torch.equal(how.table(table, (3, 4), (3, 4)), table)


@settings(max_examples=20, deadline=None)
@given(old=st.integers(2, 8), new=st.integers(2, 8))
def test_kernels_are_timms(old, new):
    kernel = torch.randn(3, 2, old, old, generator=torch.Generator().manual_seed(old))
    ours = resize_kernel(kernel, (new, new), TIMM)
    torch.testing.assert_close(ours, resample_patch_embed(kernel, [new, new]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("new", [6, 8])
def test_a_larger_kernel_answers_larger_patches_as_the_old_did_the_old(new):
    """FlexiViT, section 3.2: the product is kept exactly when patches grow."""
    how = Interpolation("bilinear", antialias=False)
    patches, kernel = torch.randn(5, 3, 4, 4).double().float(), torch.randn(7, 3, 4, 4)
    grown = how.images(patches, (new, new))
    before = torch.einsum("bcij,dcij->bd", patches, kernel)
    after = torch.einsum("bcij,dcij->bd", grown, resize_kernel(kernel, (new, new), how))
    torch.testing.assert_close(after, before, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_channels_are_timms(channels):
    kernel = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(resize_channels(kernel, channels), adapt_input_conv(channels, kernel.clone()))


@given(side=st.integers(1, 200))
def test_squares(side):
    assert square(side * side) == (side, side)
    assert square(side * side + 1) is None
