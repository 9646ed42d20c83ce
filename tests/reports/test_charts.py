"""Charts: every value lies where its axis says, and what cannot be drawn is left out."""

import math
import re

import pytest

from vitlab.reports.page.charts import FINEST, Series, build_chart
from vitlab.reports.page.samples import Sample, draw_novelty


def places(line):
    return [tuple(map(float, pair.split())) for pair in re.split("[ML]", line)[1:]]


def test_points_lie_where_the_ticks_say():
    chart = build_chart("t", [Series("a", [(0, 0.5), (50, 0.7), (100, 0.9)])], "x", "y", percent=True)
    xs, ys = (
        {float(text.replace(",", "")): place for place, text in ticks} for ticks in (chart.x_ticks, chart.y_ticks)
    )
    (x0, y0), _, (x1, y1) = places(chart.marks[0].line)
    assert (x0, x1) == (xs[0], xs[100])
    assert (y0, y1) == (ys[50], ys[90])
    assert y1 < y0  # upwards
    assert chart.about == "a: 50.00 at 0, 90.00 at 100"
    assert chart.rows[-1] == {"x": "100", "a": "90.00"}


def test_a_band_surrounds_its_curve():
    chart = build_chart("t", [Series("a", [(0, 2), (1, 4)], [(0, 1, 3), (1, 2, 6)])], "x", "y")
    heights = [y for _, y in places(chart.marks[0].band.rstrip("Z"))]
    (_, start), (_, end) = places(chart.marks[0].line)
    assert heights[0] < start < heights[3]
    assert heights[1] < end < heights[2]


@pytest.mark.parametrize("points", [[], [(0, math.nan)], [(math.inf, 1)]])
def test_nothing_finite_is_no_chart(points):
    assert build_chart("t", [Series("a", points)], "x", "y") is None


def test_one_point_equal_values_and_thousands_of_points_are_drawn():
    assert build_chart("t", [Series("a", [(3, 1e-9)])], "x", "y").marks[0].dots
    flat = build_chart("t", [Series("a", [(k, 0.0) for k in range(5)])], "x", "y")
    assert len({y for _, y in places(flat.marks[0].line)}) == 1
    many = build_chart("t", [Series("a", [(k, k % 7) for k in range(10_001)])], "x", "y")
    drawn = places(many.marks[0].line)
    assert len(drawn) <= FINEST + 1
    assert drawn[-1][0] == many.x_ticks[-1][0]


def test_each_novelty_is_in_a_bar():
    values = [-100, -0.95, -0.3, -0.01, 0.0, 0.05, 0.99, 1.01, 3, 1e9]
    chart = draw_novelty([Sample(0, "a", "cat", "cat", 0.9, 0.1, value) for value in values])
    assert {one.series.label: sum(count for _, count in one.series.points) for one in chart.marks} == {
        "one of the classes": 7,
        "none of these": 3,
    }
