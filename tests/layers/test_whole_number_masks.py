"""A mask of whole numbers could mean either kind of mask: every attention refuses it in the same words."""

import pytest
import torch
from conftest import vit_options

from vitlab.layers import (
    PRODUCTS,
    Attention,
    CrossAttention,
    RelativePosition,
    RotaryPosition,
    attention_weights,
    make_mixed_grids,
)
from vitlab.models import VisionTransformer

POSITIONS = {"none": None, "relative": RelativePosition, "rotary": RotaryPosition}
TOKENS = torch.randn(2, 5, 16)


@pytest.fixture(params=[torch.int64, torch.int32, torch.uint8], ids=str)
def mask(request):
    return torch.ones(5, 5, dtype=request.param)


def refused(call, *inputs, **options):
    with pytest.raises(ValueError, match=r"^an attn_mask holds bools, or floats to add to the scores, not torch\."):
        call(*inputs, **options)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("product", PRODUCTS)
def test_by_each_product(product, is_causal, mask):
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    refused(PRODUCTS[product], q, k, v, mask, 0.0, is_causal)
    refused(attention_weights, q, k, mask, is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_by_each_attention_and_its_weights(product, position, is_causal, mask):
    sizes = {"embed_dim": 16, "num_heads": 2}
    kind = POSITIONS[position]
    made = kind and kind(**sizes, grid=(2, 2), num_prefix_tokens=1)
    layer = Attention(**sizes, qkv_bias=True, product=product, position=made)
    for grid in (None, (2, 2), make_mixed_grids([(2, 2), (1, 3)])):
        refused(layer, TOKENS, grid, mask, is_causal)
        refused(layer.weights, TOKENS, grid, mask, is_causal)


def test_by_cross_attention(mask):
    refused(CrossAttention(embed_dim=16, num_heads=2), TOKENS, TOKENS, mask)


@pytest.mark.parametrize("attention", PRODUCTS)
def test_by_a_model_on_images_of_one_size_and_of_several(attention, mask):
    model = VisionTransformer(**vit_options(image_size=8, depth=1, attention=attention))
    refused(model.forward_features, torch.randn(2, 4, 16), (2, 2), mask)
    refused(model.forward_features, torch.randn(2, 4, 16), make_mixed_grids([(2, 2), (1, 3)]), mask)
