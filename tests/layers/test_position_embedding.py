import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import build_sincos2d_pos_embed, resample_abs_pos_embed
from vit_pytorch.simple_vit import posemb_sincos_2d

from vitlab.layers import POSITIONS, Learned1D, Learned2D, SinCos1D, SinCos2D, resample

GRIDS = st.tuples(st.integers(1, 6), st.integers(1, 6))
TABLED = ["learned_1d", "learned_2d", "sincos_1d", "sincos_2d"]


def position(kind, embed_dim=8, grid=(3, 5), num_prefix_tokens=2, embed_prefix=True):
    return POSITIONS[kind](
        embed_dim=embed_dim, grid=grid, num_prefix_tokens=num_prefix_tokens, embed_prefix=embed_prefix
    )


def table_of(positions):
    return torch.randn(positions.shape) if positions.learned else positions.initial()


# -- shapes


@pytest.mark.parametrize("embed_prefix", [True, False])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("grid", [(3, 5), (4, 1), (1, 1), (2, 2)])
@pytest.mark.parametrize("kind", TABLED)
def test_a_position_is_laid_out_over_prefix_and_patches(kind, grid, prefix, embed_prefix):
    positions = position(kind, grid=grid, num_prefix_tokens=prefix, embed_prefix=embed_prefix)
    table = table_of(positions)
    assert table.shape == positions.shape
    for size in (None, grid, (2, 7)):
        h, w = size or grid
        laid_out = positions(table, size)
        assert laid_out.shape == (1, prefix + h * w, 8)
        assert laid_out[:, :prefix].any().item() == (kind == "learned_1d" and embed_prefix and prefix > 0)
        assert laid_out[:, prefix:].any()


@pytest.mark.parametrize("kind", ["none", "relative", "rotary"])
def test_the_others_add_nothing_and_hold_nothing(kind):
    positions = position(kind)
    assert positions.shape[1] == 0
    tokens = torch.randn(2, 17, 8)
    assert torch.equal(tokens + positions(positions.initial(), (3, 5)), tokens)


def test_prefix_rows_stand_first_in_a_learned_table():
    positions = position("learned_1d")
    table = torch.randn(1, 17, 8)
    assert torch.equal(positions(table, None), table)
    assert torch.equal(positions(table, (6, 2))[:, :2], table[:, :2])


@given(GRIDS, st.integers(0, 3))
@settings(deadline=None, max_examples=25)
def test_learned_2d_puts_the_row_beside_the_column(grid, prefix):
    positions = position("learned_2d", grid=grid, num_prefix_tokens=prefix)
    table = torch.randn(positions.shape)
    assert table.shape == (1, grid[0] + grid[1], 4)
    laid_out = positions(table, None)[0, prefix:].reshape(*grid, 8)
    for row in range(grid[0]):
        for column in range(grid[1]):
            assert torch.equal(laid_out[row, column, :4], table[0, row])
            assert torch.equal(laid_out[row, column, 4:], table[0, grid[0] + column])


@pytest.mark.parametrize(
    ("kind", "embed_dim", "message"),
    [
        ("learned_2d", 9, "position 'learned_2d' needs an even embed_dim, not 9"),
        ("sincos_1d", 9, "embed_dim that is a multiple of 2, and 9 is not"),
        ("sincos_2d", 10, "embed_dim that is a multiple of 4, and 10 is not"),
    ],
)
def test_a_width_that_does_not_divide_is_refused(kind, embed_dim, message):
    with pytest.raises(ValueError, match=message):
        position(kind, embed_dim=embed_dim)


# -- sines


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=25)
def test_sincos_1d_is_the_formula_of_the_original_transformer(half, h, w):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)), pos counted over patches."""
    D = 2 * half
    table = SinCos1D(embed_dim=D, grid=(h, w), num_prefix_tokens=1, embed_prefix=True).initial()
    assert not table[0, 0].any()
    for place in range(h * w):
        for i in range(half):
            angle = place / 10_000 ** (2 * i / D)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(table[0, 1 + place, 2 * i : 2 * i + 2], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("grid", [(4, 4), (3, 7), (16, 9)])
def test_sincos_2d_is_that_of_the_plain_baseline(grid):
    """vit-pytorch has big_vision's convention: columns before rows, exponents i/(D/4 - 1)."""
    table = SinCos2D(embed_dim=32, grid=grid, num_prefix_tokens=0, embed_prefix=False).initial()
    torch.testing.assert_close(table[0], posemb_sincos_2d(*grid, 32), atol=1e-5, rtol=0)


def test_sincos_2d_is_that_of_timm_but_for_order_and_temperature():
    """timm's exponents are i/(D/4), as MoCo v3's, and rows stand before columns."""
    table = position("sincos_2d", embed_dim=32, grid=(3, 7), num_prefix_tokens=0).initial()
    theirs = build_sincos2d_pos_embed((3, 7), 32, temperature=10_000 ** (8 / 7))
    sin_row, sin_column, cos_row, cos_column = theirs.split(8, dim=1)
    reordered = torch.cat([sin_column, cos_column, sin_row, cos_row], dim=1)
    torch.testing.assert_close(table[0], reordered, atol=1e-5, rtol=0)


# -- other grids


@given(GRIDS, st.sampled_from(TABLED), st.booleans(), st.integers(0, 2))
@settings(deadline=None, max_examples=40)
def test_resizing_to_the_same_grid_is_the_identity(grid, kind, embed_prefix, prefix):
    positions = position(kind, grid=grid, num_prefix_tokens=prefix, embed_prefix=embed_prefix)
    table = table_of(positions)
    assert torch.equal(positions.resize(table, grid), table)
    assert torch.equal(positions(table, grid), positions(table, None))


@given(GRIDS, GRIDS, st.integers(0, 3), st.booleans())
@settings(deadline=None, max_examples=60)
def test_resizing_agrees_with_timm(old, new, prefix, embed_prefix):
    positions = Learned1D(embed_dim=8, grid=old, num_prefix_tokens=prefix, embed_prefix=embed_prefix)
    table = torch.randn(positions.shape)
    rows = positions.num_prefix_rows
    theirs = resample_abs_pos_embed(table, new_size=list(new), old_size=list(old), num_prefix_tokens=rows)
    ours = positions.resize(table, new)
    assert ours.shape == (1, rows + new[0] * new[1], 8)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@given(GRIDS, GRIDS)
@settings(deadline=None, max_examples=25)
def test_rows_and_columns_are_resized_apart(old, new):
    positions = Learned2D(embed_dim=8, grid=old, num_prefix_tokens=1, embed_prefix=True)
    table = torch.randn(positions.shape)
    resized = positions.resize(table, new)
    assert resized.shape == (1, new[0] + new[1], 4)
    larger = Learned2D(embed_dim=8, grid=new, num_prefix_tokens=1, embed_prefix=True)
    assert torch.equal(larger(resized, None), positions(table, new))
    one_axis = positions.resize(table, (new[0], old[1]))
    assert torch.equal(one_axis[:, new[0] :], table[:, old[0] :])  # the columns stay
    theirs = resample_abs_pos_embed(table[:, : old[0]], new_size=[new[0], 1], old_size=[old[0], 1], num_prefix_tokens=0)
    torch.testing.assert_close(one_axis[:, : new[0]], theirs, atol=1e-5, rtol=0)


def test_resampling_keeps_the_dtype_and_computes_in_float32():
    table = torch.randn(1, 15, 8)
    half = resample(table.bfloat16(), (3, 5), (6, 4))
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, resample(table.bfloat16().float(), (3, 5), (6, 4)).bfloat16())


def test_gradients_reach_a_resampled_table():
    positions = position("learned_1d")
    table = torch.randn(positions.shape, requires_grad=True)
    positions(table, (6, 4)).square().sum().backward()
    assert (table.grad != 0).all()
