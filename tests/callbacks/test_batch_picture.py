"""What stands above an image of a training batch."""

import pytest
import torch

from vitlab.callbacks.batch_picture import format_shares


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (torch.tensor([0.0, 0.0, 1.0, 0, 0, 0]), "c"),
        (torch.tensor([0.25, 0.0, 0.75, 0, 0, 0]), "75% c\n25% a"),
        (torch.tensor([0.001, 0.0, 0.999, 0, 0, 0]), "c"),
        (torch.tensor([1.0, 1.0, 0.4, 0, 0, 0.6]), "a\nb\n60% f\n40% c"),
        (torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "a\nb\nc\nd"),
        (torch.zeros(6), "none"),
    ],
)
def test_a_mixed_image_tells_the_shares_of_its_classes(target, words):
    assert format_shares(target, list("abcdef")) == words
