import math

import pytest
import torch

from vitlab.layers import DropPath


def test_evaluation_and_rate_0_leave_the_input_alone():
    x = torch.randn(16, 3, 4)
    assert torch.equal(DropPath(0.5).eval()(x), x)
    assert torch.equal(DropPath(0.0).train()(x), x)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_expected_value_is_preserved(rate):
    torch.manual_seed(0)
    samples = 100_000
    deviation = math.sqrt(rate / (1 - rate) / samples)  # of the mean: each sample is 0 or 1/(1 - rate)
    assert DropPath(rate)(torch.ones(samples, 1)).mean().item() == pytest.approx(1, abs=4 * deviation)


@pytest.mark.parametrize("shape", [(64, 5), (64, 3, 4), (64, 3, 2, 2)])
def test_a_sample_is_dropped_whole_or_kept_whole(shape):
    torch.manual_seed(0)
    x = torch.rand(shape) + 1
    y = DropPath(0.25)(x)
    kept = y.flatten(1).any(dim=1)
    assert 0 < kept.sum() < 64
    assert not y[~kept].any()
    torch.testing.assert_close(y[kept], x[kept] / 0.75)
