"""What is shown of positions and filters is what the model has learned of them."""

import pytest
import torch
from conftest import vit_options
from hypothesis import given
from hypothesis import strategies as st

from vitlab.models import VisionTransformer
from vitlab.views import (
    cosine_similarity,
    embedding_filters,
    embedding_similarity,
    principal_components,
    relative_bias,
    rotary_similarity,
)

ADDED = ("learned_1d", "learned_2d", "sincos_1d", "sincos_2d")


def built(**changes):
    torch.manual_seed(0)
    return VisionTransformer(**vit_options(**{"image_size": [16, 12], "num_registers": 2} | changes))


@pytest.mark.parametrize("embed_prefix", [True, False])
@pytest.mark.parametrize("position", ADDED)
def test_each_patch_is_most_like_itself(position, embed_prefix):
    similarity = embedding_similarity(built(position=position, embed_prefix=embed_prefix))
    assert similarity.shape == (12, 12)
    torch.testing.assert_close(similarity.diagonal(), torch.ones(12))
    torch.testing.assert_close(similarity, similarity.T)
    assert (similarity - torch.eye(12)).max() < 0.999


@pytest.mark.parametrize("position", ["none", "relative", "rotary"])
def test_nothing_is_shown_where_nothing_is_added(position):
    assert embedding_similarity(built(position=position)) is None


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.01, 100))
def test_similarity_is_one_with_itself_whatever_the_length(rows, width, scale):
    table = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows * width)) + 3
    similarity = cosine_similarity(table * scale)
    torch.testing.assert_close(similarity.diagonal(), torch.ones(rows))
    torch.testing.assert_close(similarity, cosine_similarity(table), atol=1e-5, rtol=0)


def test_the_bias_shown_is_that_of_the_key_where_it_lies():
    """In the middle the query; a key one row below and two columns to the right stands there in the tile."""
    model = built(position="relative")
    shown = relative_bias(model)  # (L, heads, 7, 5), of a grid of 4x3
    assert shown.shape == (2, 2, 7, 5)
    for layer, block in enumerate(model.blocks):
        added = block.attn.rel_pos.bias(None, None)[0][:, 3:, 3:]  # (heads, 12, 12), behind class token and registers
        for query, key in ((0, 11), (4, 4), (0, 5), (10, 1)):
            down, right = key // 3 - query // 3, key % 3 - query % 3
            assert torch.equal(shown[layer, :, 3 + down, 2 + right], added[:, query, key])
    assert relative_bias(built()) is None


@pytest.mark.parametrize("position", ["rotary", "rotary_centered", "learned_rotary", "learned_rotary_registers"])
def test_rotary_similarity_is_the_product_in_attention(position):
    model = built(position=position, num_registers=4)
    shown = rotary_similarity(model)
    rotary = model.blocks[0].attn.rel_pos
    query = torch.full((1, 1, 5 + 12, 16), 0.25)
    q, k = (x[0, 0, 5:] for x in rotary.rotate(query, query, None))
    for a, b in ((0, 11), (4, 4), (0, 5), (10, 1)):
        down, right = b // 3 - a // 3, b % 3 - a % 3
        torch.testing.assert_close(shown[3 + down, 2 + right], q[a] @ k[b])
    assert shown.argmax() == shown.numel() // 2
    assert rotary_similarity(built()) is None


@given(st.integers(2, 40), st.integers(1, 5), st.integers(1, 4), st.integers(1, 30))
def test_components_are_orthonormal_and_the_largest_first(filters, channels, size, count):
    made = torch.randn(filters, channels, size, size, generator=torch.Generator().manual_seed(filters + size)) + 1
    components, shares = principal_components(made, count)
    n = len(components)
    assert n == min(count, filters - 1, channels * size * size)
    assert components.shape == (n, channels, size, size)
    flat = components.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(n), atol=1e-5, rtol=0)
    assert (shares.diff() <= 1e-6).all()
    assert shares.sum() <= 1 + 1e-5
    centred = (made - made.mean(dim=0)).flatten(1)
    torch.testing.assert_close((centred @ flat.T).square().sum(dim=0) / centred.square().sum(), shares)


def test_filters_that_differ_in_one_direction_have_that_component():
    direction = torch.tensor([0.6, -0.8, 0.0]).view(1, 3, 1, 1)
    made = 5 + torch.linspace(-1, 1, 9).view(-1, 1, 1, 1) * direction
    components, shares = principal_components(made, 2)
    torch.testing.assert_close(components[0], -direction[0])  # the largest value is positive
    torch.testing.assert_close(shares, torch.tensor([1.0, 0.0]), atol=1e-5, rtol=0)


def test_filters_are_those_of_the_first_map_on_pixels():
    model = built(in_chans=5)
    assert torch.equal(embedding_filters(model), model.patch_embed.proj.weight)
    model = built(patch_size=None, stem_channels=[6, 8], in_chans=3)
    assert torch.equal(embedding_filters(model), model.patch_embed.proj[0].weight)
