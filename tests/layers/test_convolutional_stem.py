import pytest
import torch
from torch import nn

from vitlab.layers import ConvolutionalStem, patchify


def stem(image_size=(12, 8), channels=(6, 10)):
    torch.manual_seed(0)
    return ConvolutionalStem(image_size=image_size, channels=channels, in_chans=3, embed_dim=16)


@pytest.mark.parametrize("training", [True, False])
def test_it_is_a_sequence_of_convolutions(training):
    ours, images = stem().train(training), torch.randn(2, 3, 12, 8)
    plain = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 10, 3, 2, 1, bias=False), nn.BatchNorm2d(10), nn.ReLU()),
        nn.Conv2d(10, 16, 1),
    ).train(training)
    plain.load_state_dict(ours.proj.state_dict(), strict=True)
    tokens, grid = ours(images)
    assert grid == (3, 2)
    torch.testing.assert_close(tokens.transpose(1, 2).reshape(2, 16, 3, 2), plain(images), atol=1e-6, rtol=1e-5)


def test_another_grid_comes_with_the_images():
    tokens, grid = stem()(torch.randn(2, 3, 4, 20), grid=(1, 5))
    assert (tokens.shape, grid) == ((2, 5, 16), (1, 5))


@pytest.mark.parametrize(
    "x", [patchify(torch.zeros(2, 3, 12, 8), 4), torch.zeros(2, 3, 8, 12), torch.zeros(2, 1, 12, 8)]
)
def test_patches_and_images_of_another_size_are_refused(x):
    with pytest.raises(ValueError, match=r"the model takes images of \(channels, height, width\) \(3, 12, 8\)"):
        stem()(x)


@pytest.mark.parametrize("channels", [[], [6, 0], [-1]])
def test_no_channels_are_refused(channels):
    with pytest.raises(ValueError, match=r"stem_channels \[.*\] is not a list of one or more widths"):
        stem(channels=channels)


def test_a_size_that_the_strides_do_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"image_size \(12, 10\) is not a multiple of patch_size 4"):
        stem(image_size=(12, 10))
