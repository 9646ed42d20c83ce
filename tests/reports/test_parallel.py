"""Lines through the values of jobs: where values lie on their axes."""

import math

import pytest

from vitlab.reports.parallel import draw_parallel, place_values


@pytest.mark.parametrize(
    ("values", "log", "heights", "ticks"),
    [
        ([1e-4, 1e-3, 1e-2], True, [0, 0.5, 1], ["0.0001", "0.0003162", "0.001", "0.003162", "0.01"]),
        ([256, 8192], True, [0, 1], ["256", "608.9", "1448", "3444", "8192"]),
        ([1004, 1006], True, [0, 1], ["1004", "1005", "1006"]),
        ([0.9979, 0.9984], False, [0, 1], ["0.9979", "0.998", "0.9981", "0.9982", "0.9983", "0.9984"]),
        ([2, 3, 6], False, [0, 0.25, 1], ["2", "3", "4", "5", "6"]),
        (["b", "a", "c"], False, [0.5, 0, 1], ["a", "b", "c"]),
        ([0.5, 0.5], False, [0, 0], ["0.5"]),
    ],
)
def test_values_lie_on_the_scale_of_their_axis(values, log, heights, ticks):
    at, told = place_values(values, log)
    assert [at[value] for value in values] == pytest.approx(heights)
    assert [text for text, _ in told] == ticks
    low, high = min(values), max(values)
    for text, height in told if high != low and isinstance(high, int | float) else ():
        place = math.log(float(text) / low) / math.log(high / low) if log else (float(text) - low) / (high - low)
        assert height == pytest.approx(place, abs=1e-4)


def test_the_worst_job_can_be_seen_and_the_best_lies_above_all():
    figure = draw_parallel({"lr": [1, 2, 3], "acc": [0.1, 0.9, 0.5]}, {}, [0.1, 0.9, 0.5])
    lines = sorted((line for line in figure.axes[0].lines if line.zorder), key=lambda line: line.zorder)
    assert [line.get_ydata()[0] for line in lines] == [0, 1, 0.5]
    brightness = [sum(line.get_color()[:3]) for line in lines]
    assert 2.6 > brightness[0] > brightness[1] > brightness[2]
