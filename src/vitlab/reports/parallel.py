"""Draw a parallel coordinate plot: each job is a line through its values to its score."""

import math
from collections.abc import Sequence
from typing import Any

TICKS = 5  # roughly, on a numeric axis
DECADE = 10  # ratio of a logarithmic axis's ends from which its ticks are logarithmic, too
LONG = 12  # letters of a value from which it is broken into several lines
PALEST = 0.35  # shade of the worst job, where 0 is white and 1 blue


def draw_parallel(axes: dict[str, Sequence[Any]], log: dict[str, bool], goodness: Sequence[float]) -> Any:
    """Build the figure. `axes` holds the values of all jobs by key, and their scores; `log` says which axes are
    logarithmic. The greater a job's `goodness`, the darker its line."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 + 1.6 * len(axes), 5))
    plot = figure.add_subplot()
    heights = []
    for place, (name, values) in enumerate(axes.items()):
        at, ticks = place_values(values, log.get(name, False))
        heights.append([at[value] for value in values])
        plot.axvline(place, color="0.6", linewidth=1, zorder=0)
        for text, height in ticks:
            box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
            plot.text(place - 0.03, height, text, ha="right", va="center", size=8, bbox=box, zorder=len(values) + 1)
    shades = place_values(goodness, False)[0]
    jobs = zip(goodness, zip(*heights, strict=True), strict=True)
    for order, (good, line) in enumerate(sorted(jobs), 1):
        plot.plot(line, color=colormaps["Blues"](PALEST + (1 - PALEST) * shades[good]), zorder=order)
    plot.set_xticks(range(len(axes)), list(axes), rotation=20, ha="right", rotation_mode="anchor")
    plot.set_yticks([])
    plot.spines[:].set_visible(False)
    return figure


def place_values(values: Sequence[Any], log: bool) -> tuple[dict[Any, float], list[tuple[str, float]]]:
    """Return the height of each value on its axis, from 0 to 1, and the labels and heights of the ticks."""
    if any(isinstance(value, str) for value in values):
        names = sorted(set(values))
        at = {name: number / max(1, len(names) - 1) for number, name in enumerate(names)}
        return at, [(name if len(name) <= LONG else name.replace(",", ",\n"), at[name]) for name in names]
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    of = math.log if log else float
    span = of(high) - of(low) or 1.0
    if log and high / low >= DECADE:
        ticks = [float(f"{low * (high / low) ** (number / (TICKS - 1)):.4g}") for number in range(TICKS)]
    else:
        locator = MaxNLocator(TICKS, integer=all(float(value).is_integer() for value in values))
        slack = 1e-6 * (high - low)  # for rounding errors
        inner = [tick for tick in locator.tick_values(low, high) if low - slack <= tick <= high + slack]
        ticks = inner if low < high else [low]

    def height(value: float) -> float:
        return (of(value) - of(low)) / span

    return {value: height(value) for value in values}, [(f"{tick:.10g}", height(tick)) for tick in ticks]
