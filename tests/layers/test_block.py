import inspect
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from vitlab.layers import MLP, Attention, Block


def block(**rates):
    torch.manual_seed(0)
    rates = {"drop_rate": 0.0, "attn_drop_rate": 0.0, "drop_path_rate": 0.0} | rates
    drop, drop_path = rates["drop_rate"], rates["drop_path_rate"]
    return Block(
        attention=Attention(
            embed_dim=12, num_heads=3, qkv_bias=True, drop_rate=drop, attn_drop_rate=rates["attn_drop_rate"]
        ),
        mlp=MLP(embed_dim=12, mlp_dim=24, drop_rate=drop),
        norm=partial(torch.nn.LayerNorm, 12, eps=1e-6),
        drop_path_rate=drop_path,
    )


def test_norms_stand_before_attention_and_mlp_and_residuals_around_them():
    layer, x = block(), torch.randn(2, 5, 12)
    y = x + layer.attn(F.layer_norm(x, (12,), eps=1e-6))
    torch.testing.assert_close(layer(x), y + layer.mlp(F.layer_norm(y, (12,), eps=1e-6)))


def test_drop_path_takes_both_branches():
    x = torch.randn(4, 5, 12)
    assert torch.equal(block(drop_path_rate=1 - 1e-6)(x), x)


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate", "drop_path_rate"])
def test_randomness_acts_only_in_training(rate):
    layer, x = block(**{rate: 0.5}), torch.randn(8, 5, 12)
    expected = block()(x)  # the same seed, the same weights
    assert not torch.allclose(layer.train()(x), expected)
    assert torch.equal(layer.eval()(x), expected)


def test_the_forward_pass_is_two_lines():
    assert len(inspect.getsource(Block.forward).splitlines()) == 1 + 2
