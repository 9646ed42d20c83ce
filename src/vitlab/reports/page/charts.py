"""Lay out charts as paths of SVG, which the page draws in its own colours: curves with bands, points and bars."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Literal

from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 440, 270  # units of the drawing
LEFT, RIGHT, TOP, BOTTOM = 58, 426, 12, 226  # edges of the plane
FINEST = 250  # points of a curve
COLOURS = 6  # that the page can tell apart
ROWS = 12  # of the table beside a chart

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One curve of a chart: points (x, y), which a band (x, lowest, highest) may surround. The colour is a number of
    the page's."""

    label: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    colour: int = 0
    dashed: bool = False
    kind: Literal["line", "dots", "bars"] = "line"


@dataclass(frozen=True)
class Mark:
    """What is drawn of a series: paths of SVG, and dots with what they say."""

    series: Series
    line: str
    band: str
    dots: list[tuple[float, float, str]]


@dataclass(frozen=True)
class Chart:
    """A chart as it is drawn. `rows` are some of its numbers, for a table; `about` tells what it shows in words."""

    title: str
    x_label: str
    y_label: str
    about: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    marks: list[Mark]
    diagonal: str
    rows: list[dict[str, str]] = field(default_factory=list)


class Scale:
    """Maps values to places in a drawing, between round numbers that lie around them."""

    def __init__(self, values: Sequence[float], first: float, last: float, bounds: tuple[float, float] | None = None):
        low, high = bounds or (min(values), max(values))
        ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        if bounds is None and high > low:
            low, high = min(low, *(t for t in ticks if t <= high)), max(high, *(t for t in ticks if t >= low))
        self.ticks = [float(tick) for tick in ticks if low - 1e-12 <= tick <= high + 1e-12]
        self.low, self.high, self.first, self.last = low, high if high > low else low + 1, first, last

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)


def build_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    percent: bool = False,
    x_bounds: tuple[float, float] | None = None,
    y_bounds: tuple[float, float] | None = None,
    diagonal: bool = False,
) -> Chart | None:
    """Lay out series in one plane; None where there is nothing finite to draw. With `percent`, shares are written in
    percent; `diagonal` draws the line of equal values."""
    series = [thin(one) for one in series]
    series = [one for one in series if one.points]
    if not series:
        return None
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for y in [*(y for _, y in one.points), *(e for _, *ends in one.band for e in ends)]]
    ys += [0.0] if any(one.kind == "bars" for one in series) else []
    x_scale, y_scale = Scale(xs, LEFT, RIGHT, x_bounds), Scale(ys, BOTTOM, TOP, y_bounds)
    gaps = [b - a for a, b in pairwise(sorted(set(xs)))]
    bar = 0.8 * (x_scale(min(gaps)) - x_scale(0)) if gaps else 20.0
    factor = 100 if percent else 1
    decimals = count_decimals([factor * tick for tick in y_scale.ticks])

    def write(value: float) -> str:
        return f"{factor * value:,.{decimals}f}"

    path = f"M{x_scale(0)} {y_scale(0)}L{x_scale(1)} {y_scale(1)}" if diagonal else ""
    precise = ".2f" if percent else ".4g"
    return Chart(
        title,
        x_label,
        f"{y_label}, %" if percent else y_label,
        "; ".join(describe(one, factor, precise) for one in series),
        [(x_scale(tick), f"{tick:,g}") for tick in x_scale.ticks],
        [(y_scale(tick), write(tick)) for tick in y_scale.ticks],
        [draw(one, x_scale, y_scale, bar, factor, precise) for one in series],
        path,
        tabulate(series, x_label, factor, precise),
    )


def thin(series: Series) -> Series:
    """Keep at most `FINEST` points of a series, evenly spaced, with the last, and only finite ones."""
    points = [point for point in series.points if all(map(isfinite, point))]
    band = [edge for edge in series.band if all(map(isfinite, edge))]

    def pick(rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
        step = -(-len(rows) // FINEST) or 1
        return [*rows[::step], *([rows[-1]] if rows and (len(rows) - 1) % step else [])]

    return Series(series.label, pick(points), pick(band), series.colour, series.dashed, series.kind)  # type: ignore[arg-type]  # tuples as they came


def draw(series: Series, x_scale: Scale, y_scale: Scale, bar: float, factor: float, precise: str) -> Mark:
    places = [(x_scale(x), y_scale(y)) for x, y in series.points]
    if series.kind == "bars":
        base = y_scale(0)
        line = "".join(f"M{x - bar / 2:.1f} {base}V{y}h{bar:.1f}V{base}Z" for x, y in places)
        return Mark(series, line, "", [])
    line = "M" + "L".join(f"{x} {y}" for x, y in places)
    above = [f"{x_scale(x)} {y_scale(high)}" for x, _, high in series.band]
    below = [f"{x_scale(x)} {y_scale(low)}" for x, low, _ in reversed(series.band)]
    band = f"M{'L'.join([*above, *below])}Z" if above else ""
    told = [f"{series.label}: {factor * y:{precise}} at {x:,g}" for x, y in series.points]
    few = series.kind == "dots" or len(places) <= 30
    return Mark(series, line, band, [(x, y, text) for (x, y), text in zip(places, told, strict=True)] if few else [])


def describe(series: Series, factor: float, precise: str) -> str:
    """Say where a series begins and ends."""
    (x0, y0), (x1, y1) = series.points[0], series.points[-1]
    if len(series.points) == 1:
        return f"{series.label}: {factor * y0:{precise}} at {x0:,g}"
    return f"{series.label}: {factor * y0:{precise}} at {x0:,g}, {factor * y1:{precise}} at {x1:,g}"


def tabulate(series: Sequence[Series], x_label: str, factor: float, precise: str) -> list[dict[str, str]]:
    """Lay out some points of all series as a table, the last ones among them."""
    xs = sorted({x for one in series for x, _ in one.points})
    step = -(-len(xs) // ROWS)
    chosen = xs[::-1][::step][::-1]
    values = [(one.label, dict(one.points)) for one in series]
    return [
        {x_label: f"{x:,.6g}"} | {label: f"{factor * of[x]:{precise}}" if x in of else "" for label, of in values}
        for x in chosen
    ]


def count_decimals(ticks: Sequence[float]) -> int:
    """Count the decimals that tell neighbouring ticks apart."""
    return next((n for n in range(6) if len({f"{tick:.{n}f}" for tick in ticks}) == len(ticks)), 6)
