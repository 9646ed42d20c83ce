from functools import partial

import pytest
import torch
from timm.layers import AttentionPoolLatent

from vitlab.layers import MLP, AttentionPooling, ClassTokenPooling, MeanPooling


def attention_pooling(num_prefix_tokens=0):
    torch.manual_seed(0)
    layer = AttentionPooling(
        embed_dim=12,
        num_heads=3,
        num_prefix_tokens=num_prefix_tokens,
        mlp=partial(MLP, embed_dim=12, mlp_dim=48, drop_rate=0.0),
        norm=partial(torch.nn.LayerNorm, 12, eps=1e-6),
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def test_the_class_token_is_the_first():
    x = torch.randn(2, 5, 3)
    assert torch.equal(ClassTokenPooling()(x), x.unbind(1)[0])


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("pooling", [MeanPooling, attention_pooling])
def test_prefix_tokens_are_left_out(prefix, pooling):
    patches = torch.randn(2, 5, 12)
    x = torch.cat([torch.full((2, prefix, 12), 1e6), patches], dim=1)
    torch.testing.assert_close(pooling(num_prefix_tokens=prefix)(x), pooling(num_prefix_tokens=0)(patches))


def test_the_mean_is_of_all_patches():
    patches = torch.randn(2, 5, 3)
    torch.testing.assert_close(MeanPooling(num_prefix_tokens=0)(patches), sum(patches.unbind(1)) / 5)


def test_attention_pooling_is_that_of_timm():
    theirs = AttentionPoolLatent(12, num_heads=3, norm_layer=partial(torch.nn.LayerNorm, eps=1e-6))
    ours, x = attention_pooling(), torch.randn(4, 7, 12)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)


def test_the_weights_of_attention_pooling_are_those_it_pools_with():
    layer, x = attention_pooling(2), torch.randn(4, 7, 12)
    A, (_, _, v) = layer.weights(x), layer.heads(*layer.query_and_patches(x))
    assert A.shape == (4, 3, 1, 5)
    torch.testing.assert_close(A.sum(dim=-1), torch.ones(4, 3, 1), atol=1e-5, rtol=0)
    pooled = layer.proj((A @ v).transpose(1, 2).flatten(1))
    torch.testing.assert_close(pooled + layer.mlp(layer.norm(pooled)), layer(x), atol=1e-5, rtol=0)
