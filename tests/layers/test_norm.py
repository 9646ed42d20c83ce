import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.layers import NORMS, LayerScale


@given(st.integers(2, 16), st.floats(0.01, 100.0), st.sampled_from([1e-6, 1e-2]))
@settings(deadline=None, max_examples=25)
def test_rms_norm_divides_by_the_root_of_the_mean_square(width, scale, eps):
    norm, x = NORMS["rms_norm"](width, eps=eps), torch.randn(3, 5, width) * scale
    torch.nn.init.normal_(norm.weight)
    expected = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected, atol=1e-5, rtol=1e-5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_layer_norm_takes_the_mean_away_too():
    norm, x = NORMS["layer_norm"](12, eps=1e-6), torch.randn(3, 5, 12) + 7
    centred = x - x.mean(dim=-1, keepdim=True)
    expected = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm(x), expected, atol=1e-5, rtol=1e-5)


def test_layer_scale_is_a_factor_for_each_channel():
    layer, x = LayerScale(4, 0.1), torch.randn(2, 3, 4)
    layer.gamma.data = torch.tensor([1.0, 0.0, -2.0, 0.5])
    for channel, factor in enumerate((1.0, 0.0, -2.0, 0.5)):
        torch.testing.assert_close(layer(x)[..., channel], x[..., channel] * factor)
