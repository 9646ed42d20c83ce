import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.layers import (
    POSITIONS,
    Attention,
    AttentionPooling,
    ClassTokenPooling,
    ConvolutionalStem,
    MeanPooling,
    MixedGrids,
    PatchEmbedding,
    RelativePosition,
    RotaryPosition,
    make_mixed_grids,
    mask_padding,
)
from vitlab.layers.mixed_grids import lay_out_tokens

GRIDS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4)


def shuffled(grids, keep=1.0, seed=0):
    """Of each image a share of its patches, at least one, in any order and at any places of the sequence."""
    generator = torch.Generator().manual_seed(seed)
    coordinates, mask = torch.zeros_like(grids.coordinates), torch.zeros_like(grids.mask)
    B, N = mask.shape
    for i in range(B):
        own = grids.coordinates[i, grids.mask[i]]
        count = max(1, round(keep * len(own)))
        to = torch.randperm(N, generator=generator)[:count]
        coordinates[i, to] = own[torch.randperm(len(own), generator=generator)[:count]]
        mask[i, to] = True
    return MixedGrids(coordinates, mask, grids.grids)


# -- the sequences


@given(GRIDS)
def test_patches_of_whole_images_stand_in_rows_with_the_fill_behind(grids):
    coordinates, mask, given_back = make_mixed_grids(grids)
    counts = [h * w for h, w in grids]
    assert (coordinates.dtype, mask.dtype, given_back) == (torch.int64, torch.bool, tuple(grids))
    assert coordinates.shape == (len(grids), max(counts), 2)
    for i, (h, w) in enumerate(grids):
        there = [[row, column] for row in range(h) for column in range(w)]
        assert coordinates[i].tolist() == there + [[0, 0]] * (max(counts) - h * w)
        assert mask[i].tolist() == [n < h * w for n in range(max(counts))]


@pytest.mark.parametrize("grids", [[], [(2, 3), (0, 4)]])
def test_no_grids_and_no_patches_are_refused(grids):
    with pytest.raises(ValueError, match="a batch of mixed grids needs at least one grid, each at least 1x1, not"):
        make_mixed_grids(grids)


# -- positions


@given(GRIDS, st.integers(0, 2), st.integers(0, 9))
@settings(deadline=None)
def test_each_token_gets_what_stands_at_its_coordinates(grids, prefix, seed):
    """Rows that say which grid and which token they are for."""

    def lay_out(grid):
        h, w = grid
        return torch.tensor([[h, w, number] for number in range(prefix + h * w)])[None].float()

    mixed = shuffled(make_mixed_grids(grids), 0.7, seed)
    rows = lay_out_tokens(lay_out, mixed, prefix)
    assert rows.shape == (len(grids), prefix + mixed.mask.shape[1], 3)
    for i, (h, w) in enumerate(grids):
        assert rows[i, :, :2].unique(dim=0).tolist() == [[h, w]]
        assert rows[i, :prefix, 2].tolist() == list(range(prefix))
        row, column = mixed.coordinates[i].unbind(-1)
        assert torch.equal(rows[i, prefix:, 2], prefix + row * w + column.float())


@pytest.mark.parametrize("embed_prefix", [True, False])
@pytest.mark.parametrize("kind", POSITIONS)
def test_embeddings_are_those_of_each_grid(kind, embed_prefix):
    position = POSITIONS[kind](embed_dim=8, grid=(3, 4), num_prefix_tokens=2, embed_prefix=embed_prefix)
    table = torch.randn(position.shape) if position.learned else position.initial()
    mixed = make_mixed_grids([(3, 4), (2, 5), (4, 4), (2, 5)])
    laid_out = position(table, mixed).expand(4, 18, 8)
    for i, (h, w) in enumerate(mixed.grids):
        alone = position(table, (h, w)).expand(1, 2 + h * w, 8)
        assert torch.equal(laid_out[i, : 2 + h * w], alone[0])


def test_the_bias_is_that_of_each_grid():
    layer = RelativePosition(embed_dim=12, num_heads=3, grid=(3, 4), num_prefix_tokens=2)
    torch.nn.init.normal_(layer.relative_position_bias_table)
    mixed = make_mixed_grids([(3, 4), (2, 5), (4, 4)])
    bias = layer.bias(None, mixed)
    assert bias.shape == (3, 3, 18, 18)
    for i, (h, w) in enumerate(mixed.grids):
        T = 2 + h * w
        assert torch.equal(bias[i, :, :T, :T], layer.bias(None, (h, w))[0])


def test_queries_are_turned_as_in_each_grid():
    layer = RotaryPosition(embed_dim=16, num_heads=2, grid=(3, 4), num_prefix_tokens=2)
    mixed = make_mixed_grids([(3, 4), (2, 5), (4, 4)])
    q, k = torch.randn(2, 3, 2, 18, 8).unbind()
    turned = layer.rotate(q, k, mixed)
    for i, (h, w) in enumerate(mixed.grids):
        T = 2 + h * w
        alone = layer.rotate(q[i : i + 1, :, :T], k[i : i + 1, :, :T], (h, w))
        for ours, theirs in zip(turned, alone, strict=True):
            assert torch.equal(ours[i, :, :T], theirs[0])


# -- what is not there


@pytest.mark.parametrize("kind", ["none", "bools", "numbers"])
def test_no_token_looks_at_the_fill(kind):
    mixed = make_mixed_grids([(2, 2), (1, 3)])
    allowed = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) < 0.7
    attn_mask = {"none": None, "bools": allowed, "numbers": torch.zeros(5, 5).masked_fill(~allowed, -math.inf)}[kind]
    layer = Attention(embed_dim=8, num_heads=2, qkv_bias=True)
    joined = mask_padding(attn_mask, mixed, 1)
    weights = layer.weights(torch.randn(2, 5, 8), mixed, joined)
    expected = torch.tensor([[True] * 5, [True] * 4 + [False]])[:, None].expand(2, 5, 5)
    expected = expected if attn_mask is None else expected & allowed
    assert torch.equal(weights > 0, expected[:, None].expand(2, 2, 5, 5))
    assert mask_padding(attn_mask, (2, 2), 1) is attn_mask


def attention_pooling(prefix):
    torch.manual_seed(0)
    layer = AttentionPooling(
        embed_dim=12,
        num_heads=3,
        num_prefix_tokens=prefix,
        mlp=lambda: torch.nn.Linear(12, 12),
        norm=lambda: torch.nn.LayerNorm(12),
    )
    torch.nn.init.normal_(layer.latent)
    return layer


@pytest.mark.parametrize("pooling", [ClassTokenPooling(), MeanPooling(num_prefix_tokens=1), attention_pooling(1)])
def test_pooling_leaves_the_fill_out(pooling):
    tokens, present = torch.randn(2, 1 + 5, 12), torch.tensor([[True] * 5, [True, False, True, True, False]])
    pooled = pooling(tokens, present)
    torch.testing.assert_close(pooled[:1], pooling(tokens[:1]), atol=1e-6, rtol=0)
    torch.testing.assert_close(pooled[1:], pooling(tokens[1:, [0, 1, 3, 4]]), atol=1e-6, rtol=0)
    tokens[1, [2, 5]] = 1e6
    assert torch.equal(pooling(tokens, present), pooled)


def test_the_weights_of_attention_pooling_leave_the_fill_out():
    tokens, present = torch.randn(2, 1 + 5, 12), torch.tensor([[True] * 5, [True, False, True, True, False]])
    weights = attention_pooling(1).weights(tokens, present)
    assert torch.equal(weights > 0, present[:, None, None].expand(2, 3, 1, 5))


# -- refusals


@pytest.mark.parametrize(
    ("shape", "given_to", "message"),
    [
        ((2, 1, 8, 8), {}, r"takes \(images, patches, .*\) \(2, 6, 16\), not \(2, 1, 8, 8\)"),
        ((2, 5, 16), {}, r"takes \(images, patches, .*\) \(2, 6, 16\), not \(2, 5, 16\)"),
        ((3, 6, 16), {}, r"takes \(images, patches, .*\) \(2, 6, 16\), not \(3, 6, 16\)"),
        ((2, 6, 17), {}, r"takes \(images, patches, .*\) \(2, 6, 16\), not \(2, 6, 17\)"),
        ((2, 6, 16), {"grids": ((2, 3),)}, r"a mask \(2, 6\) need 2 grids and .*, not 1 grids and .* \(2, 6, 2\)"),
        ((2, 6, 16), {"coordinates": torch.zeros(2, 5, 2)}, r"need .* coordinates \(2, 6, 2\), not 2 .* \(2, 5, 2\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(shape, given_to, message):
    stem = PatchEmbedding(image_size=8, patch_size=4, in_chans=1, embed_dim=3)
    with pytest.raises(ValueError, match=message):
        stem(torch.randn(shape), make_mixed_grids([(2, 3), (1, 4)])._replace(**given_to))


def test_a_stem_of_convolutions_takes_no_mixed_grids():
    stem = ConvolutionalStem(image_size=8, channels=[2, 3], in_chans=1, embed_dim=3)
    with pytest.raises(ValueError, match="a convolutional stem takes images of one size; for mixed sizes"):
        stem(torch.randn(2, 6, 16), make_mixed_grids([(2, 3), (1, 4)]))
