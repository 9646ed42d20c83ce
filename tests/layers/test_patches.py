import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.layers import PatchEmbedding, patchify, unpatchify

SIZES = st.fixed_dictionaries({name: st.integers(1, 4) for name in "BChwP"})


def numbered(B, C, h, w, P):
    """Images in which no two pixels are equal."""
    return torch.arange(B * C * h * w * P * P).reshape(B, C, h * P, w * P)


@given(SIZES)
@settings(deadline=None)
def test_unpatchify_is_the_inverse_of_patchify(sizes):
    images, P = numbered(**sizes), sizes["P"]
    patches = patchify(images, P)
    assert patches.shape == (sizes["B"], sizes["h"] * sizes["w"], sizes["C"] * P * P)
    assert torch.equal(unpatchify(patches, P, (sizes["h"], sizes["w"])), images)


@given(SIZES)
@settings(deadline=None)
def test_patches_go_row_by_row_and_each_is_flattened_as_a_kernel(sizes):
    images, P, w = numbered(**sizes), sizes["P"], sizes["w"]
    for n, patch in enumerate(patchify(images, P).unbind(1)):
        top, left = n // w * P, n % w * P
        assert torch.equal(patch, images[:, :, top : top + P, left : left + P].flatten(1))  # (B, C, P, P)


@pytest.mark.parametrize("size", [(8, 6), (6, 8)])
def test_images_that_cannot_be_cut_are_refused(size):
    with pytest.raises(ValueError, match="cannot be cut into patches of 4x4"):
        patchify(torch.zeros(1, 3, *size), 4)


def test_patches_that_do_not_fill_the_grid_are_refused():
    with pytest.raises(ValueError, match="6 patches do not fill a grid of 2x4"):
        unpatchify(torch.zeros(1, 6, 12), 2, (2, 4))


@pytest.fixture
def embedding():
    torch.manual_seed(0)
    return PatchEmbedding(image_size=12, patch_size=4, in_chans=3, embed_dim=8)


@pytest.mark.parametrize("cut", [lambda x: patchify(x, 4), lambda x: x], ids=["patches", "images"])
def test_the_linear_map_on_patches_is_the_strided_convolution_on_pixels(embedding, cut):
    images = torch.randn(2, 3, 12, 12)
    convolution = F.conv2d(images, embedding.proj.weight, embedding.proj.bias, stride=4).flatten(2).transpose(1, 2)
    tokens, grid = embedding(cut(images))
    assert grid == (3, 3)
    torch.testing.assert_close(tokens, convolution, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(2, 4, 48), (2, 9, 16), (2, 3, 8, 8), (2, 1, 12, 12), (2, 3, 10, 10)])
def test_inputs_of_another_size_are_refused(embedding, shape):
    with pytest.raises(ValueError, match="the model takes"):
        embedding(torch.zeros(shape))


@pytest.mark.parametrize(
    ("image_size", "patch_size", "message"),
    [
        (10, 4, "image_size 10 is not a multiple of patch_size 4"),
        ([8, 10], 4, r"image_size \[8, 10\] is not a multiple of patch_size 4"),
        (0, 4, "image_size 0 is not a multiple of patch_size 4"),
        (8, 0, "image_size 8 is not a multiple of patch_size 0"),
        ([8], 4, r"image_size \[8\] is neither one number of pixels nor height and width"),
        ([3, 8, 8], 4, r"image_size \[3, 8, 8\] is neither one number of pixels nor height and width"),
    ],
)
def test_an_image_size_that_patches_do_not_fill_is_refused(image_size, patch_size, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(image_size=image_size, patch_size=patch_size, in_chans=3, embed_dim=8)


def test_a_grid_may_be_a_list_and_comes_back_as_a_tuple(embedding):
    """Compared with a tuple, a list is another grid: positions would be resampled for nothing."""
    assert embedding(torch.zeros(2, 3, 12, 12), [3, 3])[1] == (3, 3)
