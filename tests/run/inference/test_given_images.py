"""Images as Python users have them: files, Pillow's, arrays and tensors."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.errors import DataError
from vitlab.run.inference.given_images import convert_to_uint8, list_images, load_stored


def test_a_batch_is_its_images_and_lists_may_nest():
    assert len(list_images(np.zeros((3, 4, 4, 1), np.uint8))) == 3
    assert len(list_images([torch.zeros(1, 4, 4), [Image.new("L", (4, 4)), np.zeros((4, 4))]])) == 3


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ([], "the list of images is empty"),
        (np.zeros(4), "has 1 dimension"),
        (5, "a int is not an image"),
        ({"a": 1}, "a dict is not an image"),
    ],
)
def test_what_is_no_image_is_refused(images, sentence):
    with pytest.raises(DataError, match=sentence):
        list_images(images)


def test_floats_from_0_to_1_become_bytes():
    assert convert_to_uint8(np.array([[0.0, 0.5, 1.0]])).tolist() == [[0, 128, 255]]
    for wrong in (np.array([[1.5]]), np.array([[np.nan]]), np.array([[3]]), np.zeros((0, 4))):
        with pytest.raises(ValueError, match="pixels"):
            convert_to_uint8(wrong)


def test_tensors_have_their_channels_first_and_arrays_last():
    assert load_stored(torch.zeros(3, 4, 5), "RGB").shape == (4, 5, 3)
    with pytest.raises(ValueError, match="an array is"):
        load_stored(np.zeros((3, 40, 50)), "RGB")
