import pytest
import torch

from vitlab.layers import ClassTokenPooling, MeanPooling


def test_the_class_token_is_the_first():
    x = torch.randn(2, 5, 3)
    assert torch.equal(ClassTokenPooling()(x), x.unbind(1)[0])


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_the_mean_is_of_the_patches_alone(prefix):
    patches = torch.randn(2, 5, 3)
    x = torch.cat([torch.full((2, prefix, 3), 1e6), patches], dim=1)
    torch.testing.assert_close(MeanPooling(prefix)(x), sum(patches.unbind(1)) / 5)
