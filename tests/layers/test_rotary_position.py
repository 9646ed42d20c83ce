import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat

from vitlab.layers import RotaryPosition

GRIDS = st.tuples(st.integers(1, 5), st.integers(1, 5))


def rotary(grid=(3, 4), prefix=2, head_dim=8):
    return RotaryPosition(embed_dim=2 * head_dim, num_heads=2, grid=grid, num_prefix_tokens=prefix)


@given(GRIDS, GRIDS, st.integers(0, 2), st.sampled_from([4, 8, 12]))
@settings(deadline=None, max_examples=40)
def test_scores_depend_only_on_the_offset_between_patches(own, grid, prefix, head_dim):
    """One query and one key, put at every place: the score of each pair of places is that of its offset."""
    layer, (h, w) = rotary(own, prefix, head_dim), grid
    q, k = (torch.randn(1, 2, 1, head_dim).expand(-1, -1, prefix + h * w, -1) for _ in range(2))
    turned_q, turned_k = layer.rotate(q, k, grid)
    scores = (turned_q @ turned_k.transpose(-2, -1))[0, :, prefix:, prefix:]
    of_offset = {}
    for a in range(h * w):
        for b in range(h * w):
            first = of_offset.setdefault((a // w - b // w, a % w - b % w), scores[:, a, b])
            torch.testing.assert_close(scores[:, a, b], first, atol=1e-4, rtol=0)
    torch.testing.assert_close(of_offset[0, 0], (q * k).sum(dim=-1)[0, :, 0], atol=1e-4, rtol=0)
    if h > 1 and w > 1:  # and different offsets differ
        assert not torch.allclose(of_offset[1, 0], of_offset[0, 1], atol=1e-4)


@given(GRIDS, st.integers(0, 3))
@settings(deadline=None, max_examples=25)
def test_norms_stay_and_prefix_tokens_are_not_turned(grid, prefix):
    q, k = torch.randn(2, 2, 2, prefix + grid[0] * grid[1], 8).unbind()
    for before, after in zip((q, k), rotary(grid, prefix).rotate(q, k, None), strict=True):
        torch.testing.assert_close(after.norm(dim=-1), before.norm(dim=-1), atol=1e-5, rtol=0)
        assert torch.equal(after[:, :, : prefix + 1], before[:, :, : prefix + 1])  # nor the patch at (0, 0)
        assert prefix + 1 == before.shape[2] or not torch.allclose(after, before, atol=1e-3)


@given(GRIDS, st.sampled_from([4, 8, 12]))
@settings(deadline=None, max_examples=25)
def test_queries_are_turned_as_by_timm(grid, head_dim):
    """timm's with index positions, temperature 100, pairs side by side, and the column first ("xy")."""
    theirs = RotaryEmbeddingCat(
        head_dim, temperature=100.0, in_pixels=False, feat_shape=list(grid), grid_indexing="xy"
    ).get_embed()
    q, k = torch.randn(2, 3, 2, grid[0] * grid[1], head_dim).unbind()
    for before, after in zip((q, k), rotary(grid, 0, head_dim).rotate(q, k, None), strict=True):
        torch.testing.assert_close(after, apply_rot_embed_cat(before, theirs), atol=1e-5, rtol=0)


def test_another_grid_is_as_if_made_for_it():
    q, k = torch.randn(2, 1, 2, 2 + 10, 8).unbind()
    for ours, made in zip(rotary().rotate(q, k, (2, 5)), rotary((2, 5)).rotate(q, k, None), strict=True):
        assert torch.equal(ours, made)


@pytest.mark.parametrize("whole", [False, True], ids=["autocast", "model_in_bf16"])
def test_angles_are_float32_whatever_the_model(whole):
    """In bf16 the angle of column 15 would be wrong by up to 0.03."""
    layer = rotary((16, 16), 0, 8)
    q, k = torch.randn(2, 1, 2, 256, 8).bfloat16().unbind()
    expected = layer.rotate(q.float(), k.float(), None)
    layer = layer.bfloat16() if whole else layer
    with torch.autocast("cpu", torch.bfloat16, enabled=not whole):
        turned = layer.rotate(q, k, None)
    for ours, exact in zip(turned, expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.equal(ours, exact.bfloat16())


def test_a_head_that_4_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"position 'rotary' needs a head width that is a multiple of 4, .* is 6"):
        rotary(head_dim=6)
