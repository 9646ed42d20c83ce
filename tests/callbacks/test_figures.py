"""Titles above pictures stay above their own, whatever files and classes are called."""

import warnings
from itertools import combinations

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vitlab.callbacks.figures import RIGHT, WRONG, image_grid, write_figure

LONG = ["Brachypelma_hamorii_mexican_redknee_tarantula", "Theraphosa blondi, the goliath birdeater spider", "cat $1_2$"]


def test_titles_do_not_overlap_and_are_marked():
    titles = [f"IMG_2024_11_03_000{i}.jpeg\n✗ 39.1% {LONG[i % 3]}\nis {LONG[(i + 1) % 3]}" for i in range(10)]
    marks = [i % 4 == 0 for i in range(10)]
    figure = image_grid([torch.rand(3, 8, 8)] * 10, titles, columns=8, heading="a heading\nof two lines", marks=marks)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    heading, *words = figure.axes[0].texts
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in (heading, *words)]
    boxes += [image.get_window_extent(canvas.get_renderer()) for image in figure.axes[0].images]
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other), (one, other)
    assert [text.get_color() for text in words] == [RIGHT if mark else WRONG for mark in marks]
    assert "".join(words[0].get_text().splitlines()[2:]).startswith(f"✗ 39.1% {LONG[0]}is ")  # names are whole


def test_letters_that_no_font_has_are_drawn_without_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_figure(image_grid([torch.rand(3, 8, 8)], ["\u7e82"], columns=1, heading="\u7e82"), tmp_path / "one.png")
