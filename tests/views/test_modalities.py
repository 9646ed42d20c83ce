"""How image and text look at each other: what is drawn, and what is measured."""

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vitlab.views import modalities_figure
from vitlab.views.modalities import measure_crossing

QUESTION, WRITTEN = ["h", "?", "", ""], ["4", "end"]  # N = 3 patches, Q = 4, M = 2


def even():
    """Each looks at all that it may see alike. (1, L, h, T, T)"""
    mask = torch.ones(9, 9).tril()
    mask[:, :7] = 1
    return (mask / mask.sum(dim=1, keepdim=True)).expand(1, 2, 3, 9, 9).clone()


def test_even_attention_lies_on_its_line():
    for shares, line in measure_crossing(even()[0].mean(dim=1), 3, QUESTION).values():
        assert shares.tolist() == pytest.approx([line, line])
    assert measure_crossing(even()[0].mean(dim=1), 3, QUESTION)["patches at the text"][1] == 4 / 7


def test_fill_is_no_word_that_looks():
    whole, other = even(), even()
    other[..., 5:7, :] = torch.eye(9)[0]  # fill looks at the first patch alone
    for name, (shares, _) in measure_crossing(other[0].mean(dim=1), 3, QUESTION).items():
        assert torch.equal(shares, measure_crossing(whole[0].mean(dim=1), 3, QUESTION)[name][0])
    other[..., 4, :] = torch.eye(9)[0]  # a word does
    seen = measure_crossing(other[0].mean(dim=1), 3, QUESTION)["words at the image"][0]
    assert seen.tolist() == pytest.approx([(3 / 7 + 1 + 3 / 8 + 3 / 9) / 4] * 2)


def test_rows_are_named_by_what_is_written_and_columns_by_what_is_seen():
    figure = modalities_figure(even(), QUESTION, WRITTEN, "title")
    first, second, below = figure.axes
    for axes in (first, second):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["patches", *QUESTION, *WRITTEN]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["patches", *QUESTION, "begin", "4"]
    assert {line.get_label() for line in below.lines} >= {"words at the image", "patches at the text"}
    FigureCanvasAgg(figure).draw()
    assert below.get_legend().get_window_extent().y0 >= below.get_window_extent().y1 - 1  # over no point
