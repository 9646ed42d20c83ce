import math

import pytest
import torch

from vitlab.layers import Attention


def attention(embed_dim=12, num_heads=3, qkv_bias=True, drop_rate=0.0, attn_drop_rate=0.0):
    torch.manual_seed(0)
    return Attention(
        embed_dim=embed_dim, num_heads=num_heads, qkv_bias=qkv_bias, drop_rate=drop_rate, attn_drop_rate=attn_drop_rate
    )


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_each_head_is_the_softmax_of_scaled_products(qkv_bias):
    layer, d = attention(qkv_bias=qkv_bias), 4
    x = torch.randn(2, 5, 12)
    Q, K, V = (x @ layer.qkv.weight.T + (layer.qkv.bias if qkv_bias else 0)).split(12, dim=-1)
    heads = []
    for head in range(3):
        q, k, v = (matrix[..., head * d : (head + 1) * d] for matrix in (Q, K, V))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(d), dim=-1) @ v)
    expected = torch.cat(heads, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=1e-5)


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="embed_dim 10 is not a multiple of num_heads 3"):
        attention(embed_dim=10)


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate"])
def test_dropout_acts_only_in_training(rate):
    layer, x = attention(**{rate: 0.5}), torch.randn(2, 5, 12)
    expected = attention()(x)  # the same seed, the same weights
    assert not torch.allclose(layer.train()(x), expected)
    assert torch.equal(layer.eval()(x), expected)
