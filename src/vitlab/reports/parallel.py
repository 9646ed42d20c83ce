"""Draw each job as a line through its values to its score."""

import math
from collections.abc import Sequence
from typing import Any

TICKS = 5  # on an axis of numbers, about
DECADE = 10  # between the ends of a logarithmic axis from which on its ticks are as well
LONG = 12  # letters of a value from which on it is written in several lines
PALEST = 0.35  # of the colours from white to blue, that of the worst job


def parallel(axes: dict[str, Sequence[Any]], log: dict[str, bool], goodness: Sequence[float]) -> Any:
    """Make the figure. `axes` are the values of each job, numbers or texts, the score among them; `log` tells which
    axes are logarithmic; the better a job, the darker its line."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 + 1.6 * len(axes), 5))
    plot = figure.add_subplot()
    heights = []
    for place, (name, values) in enumerate(axes.items()):
        at, ticks = scale(values, log.get(name, False))
        heights.append([at[value] for value in values])
        plot.axvline(place, color="0.6", linewidth=1, zorder=0)
        for text, height in ticks:
            box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
            plot.text(place - 0.03, height, text, ha="right", va="center", size=8, bbox=box, zorder=len(values) + 1)
    shades = scale(goodness, False)[0]
    jobs = zip(goodness, zip(*heights, strict=True), strict=True)
    for order, (good, line) in enumerate(sorted(jobs), 1):
        plot.plot(line, color=colormaps["Blues"](PALEST + (1 - PALEST) * shades[good]), zorder=order)
    plot.set_xticks(range(len(axes)), list(axes), rotation=20, ha="right", rotation_mode="anchor")
    plot.set_yticks([])
    plot.spines[:].set_visible(False)
    return figure


def scale(values: Sequence[Any], log: bool) -> tuple[dict[Any, float], list[tuple[str, float]]]:
    """Give the height of each value, from 0 to 1, and those of the ticks."""
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
        slack = 1e-6 * (high - low)  # for what computing in floats leaves
        inner = [tick for tick in locator.tick_values(low, high) if low - slack <= tick <= high + slack]
        ticks = inner if low < high else [low]

    def height(value: float) -> float:
        return (of(value) - of(low)) / span

    return {value: height(value) for value in values}, [(f"{tick:.10g}", height(tick)) for tick in ticks]
