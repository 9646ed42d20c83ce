import math

import pytest
import torch
import torch.nn.functional as F

from vitlab.layers import MLP, MLPS, SwiGLU, mlp_width


def test_the_mlp_is_two_linear_maps_around_an_exact_gelu():
    mlp, x = MLP(embed_dim=12, mlp_dim=24, drop_rate=0.0), torch.randn(2, 5, 12)
    z = x @ mlp.fc1.weight.T + mlp.fc1.bias
    hidden = z * (1 + torch.erf(z / math.sqrt(2))) / 2
    torch.testing.assert_close(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias, atol=1e-6, rtol=1e-5)


def test_gelu_tanh_is_the_approximation():
    mlp = MLPS["gelu_tanh"](embed_dim=12, mlp_dim=24, drop_rate=0.0)
    z = torch.randn(1000) * 3
    approximation = z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    torch.testing.assert_close(mlp.act(z), approximation, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(mlp.act(z), F.gelu(z), atol=1e-5, rtol=0)


def test_swiglu_gates_with_the_first_half():
    """(swish(xW) ⊙ xV) W₂, and swish(z) = z / (1 + exp(-z))."""
    mlp, x = SwiGLU(embed_dim=12, mlp_dim=7, drop_rate=0.0), torch.randn(2, 5, 12)
    W, V = mlp.fc1.weight.chunk(2)
    w, v = mlp.fc1.bias.chunk(2)
    z = x @ W.T + w
    expected = (z / (1 + torch.exp(-z)) * (x @ V.T + v)) @ mlp.fc2.weight.T + mlp.fc2.bias
    torch.testing.assert_close(mlp(x), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", MLPS)
def test_dropout_acts_only_in_training_and_twice(kind):
    x = torch.randn(2, 5, 12)
    mlp = MLPS[kind](embed_dim=12, mlp_dim=24, drop_rate=0.5).eval()
    expected = mlp(x)
    assert torch.equal(mlp(x), expected)
    torch.manual_seed(0)
    dropped = mlp.train()(x)
    assert (dropped == 0).any()  # after the second layer
    kept = dropped != 0
    assert not torch.allclose(dropped[kept], 2 * expected[kept], atol=1e-4)  # and after the first


@pytest.mark.parametrize(
    ("mlp_ratio", "mlp_dim", "width"), [(4.0, None, 5632), (4.363636, None, 6143), (None, 6144, 6144)]
)
def test_the_width_is_a_ratio_or_a_number(mlp_ratio, mlp_dim, width):
    assert mlp_width(1408, mlp_ratio, mlp_dim) == width


@pytest.mark.parametrize(
    ("mlp_ratio", "mlp_dim", "message"),
    [
        (None, None, "exactly one of mlp_ratio and mlp_dim must be given"),
        (4.0, 48, "exactly one of mlp_ratio and mlp_dim must be given"),
        (0.0, None, "mlp_ratio 0.0, mlp_dim None: a hidden layer of width 0 is not at least 1"),
        (None, -3, "mlp_ratio None, mlp_dim -3: a hidden layer of width -3 is not at least 1"),
    ],
)
def test_other_widths_are_refused(mlp_ratio, mlp_dim, message):
    with pytest.raises(ValueError, match=message):
        mlp_width(12, mlp_ratio, mlp_dim)
