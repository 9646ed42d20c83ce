"""Colours of heat maps say how much more than an even share a place gets, and which values are clipped."""

import numpy as np
import pytest
import torch

from vitlab.views.mosaic import mosaic_figure, scale_attention


def test_even_attention_is_dark_and_six_times_as_much_bright():
    scale = scale_attention(torch.ones(2, 3, 16))
    assert scale.extend == "neither"
    even, more = scale.colours(torch.tensor([1.0, 6.0]))
    assert max(even) < 0.5
    assert even[2] > even[0]  # bluish: red looks like much
    assert more[0] > 0.9


@pytest.mark.parametrize(("most", "extend"), [(3.0, "neither"), (50.0, "max")])
def test_values_beyond_the_colours_are_shown_at_the_bar(most, extend):
    values = torch.ones(10, 10, 100)
    values[0, 0, 0] = most
    assert scale_attention(values).extend == extend


def test_no_label_of_the_colour_bar_lies_beyond_its_end():
    scale = scale_attention(torch.full((1, 1, 16), 16.2))
    figure = mosaic_figure(np.zeros((1, 1, 8, 8, 3)), ["1"], ["1"], title="", labels=("", ""), scale=scale)
    assert max(figure.axes[1].get_yticks()) <= 16.2
