import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import gen_relative_position_index

from vitlab.layers import RelativePosition, resample
from vitlab.layers.relative_position import offset_index

GRIDS = st.tuples(st.integers(1, 5), st.integers(1, 5))


def relative(grid=(3, 4), prefix=2, heads=3):
    torch.manual_seed(0)
    layer = RelativePosition(embed_dim=12, num_heads=heads, grid=grid, num_prefix_tokens=prefix)
    torch.nn.init.normal_(layer.relative_position_bias_table)
    return layer


@given(GRIDS, GRIDS, st.integers(0, 2))
@settings(deadline=None, max_examples=25)
def test_the_bias_depends_only_on_the_offset(own, grid, prefix):
    bias = relative(own, prefix).bias(None, grid).detach()
    h, w = grid
    assert bias.shape == (1, 3, prefix + h * w, prefix + h * w)
    assert not bias[:, :, :prefix].any()
    assert not bias[:, :, :, :prefix].any()
    patches = bias[0, :, prefix:, prefix:]
    of_offset = {}
    for a in range(h * w):
        for b in range(h * w):
            offset = (a // w - b // w, a % w - b % w)
            assert torch.equal(of_offset.setdefault(offset, patches[:, a, b]), patches[:, a, b])
    assert len(of_offset) == (2 * h - 1) * (2 * w - 1)
    if own == grid:  # each offset has a number of its own
        assert len({tuple(values.tolist()) for values in of_offset.values()}) == len(of_offset)


@given(GRIDS)
@settings(deadline=None, max_examples=25)
def test_offsets_are_numbered_as_in_timm(grid):
    assert torch.equal(offset_index(grid), gen_relative_position_index(grid))


def test_the_same_grid_is_the_identity():
    layer = relative()
    assert torch.equal(layer.resize((3, 4)), layer.relative_position_bias_table)
    assert torch.equal(layer.bias(None, (3, 4)), layer.bias(None, None))


@given(GRIDS, GRIDS)
@settings(deadline=None, max_examples=25)
def test_another_grid_has_a_resampled_table(old, new):
    layer = relative(old)
    offsets_old, offsets_new = ((2 * h - 1, 2 * w - 1) for h, w in (old, new))
    expected = resample(layer.relative_position_bias_table[None], offsets_old, offsets_new)[0]
    assert torch.equal(layer.resize(new), expected)
    assert expected.shape == (offsets_new[0] * offsets_new[1], 3)
    other = relative(new)
    with torch.no_grad():
        other.relative_position_bias_table.copy_(expected)
    assert torch.equal(other.bias(None, None), layer.bias(None, new))


@pytest.mark.parametrize("shape", [(14, 14), (1, 14), (2, 1, 1, 14), (2, 3, 14, 14)])
@pytest.mark.parametrize("numbers", [False, True])
def test_masks_of_any_broadcast_shape_join_the_bias(shape, numbers):
    layer = relative()
    allowed = torch.rand(shape) < 0.7
    attn_mask = torch.zeros(shape).masked_fill(~allowed, -torch.inf) if numbers else allowed
    bias = layer.bias(None, None).detach()
    joined = layer.bias(attn_mask, None).detach()
    assert torch.equal(joined, torch.where(allowed, bias, -torch.inf))
    assert joined.shape == torch.broadcast_shapes(bias.shape, shape)
