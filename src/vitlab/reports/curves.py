"""Draw the metrics of a run over its steps, from its metrics.csv."""

import csv
from pathlib import Path

from matplotlib.figure import Figure

from vitlab.atomic_files import write_atomically
from vitlab.monitors import find_metric

METRICS = "metrics.csv"
COLOURS = {"train": "tab:gray", "val": "tab:blue", "test": "tab:orange"}
Curve = list[tuple[int, float]]


def draw_curves(folder: Path, monitor: str) -> Path | None:
    """Draw the loss, and beside it the metric that the run is judged by, of training, validation and test, into
    pictures/curves.png; return its path, None for a run with less than two rows."""
    curves = read_curves(folder / METRICS)
    wanted = ["loss"] if monitor.endswith("/loss") else ["loss", monitor.partition("/")[2]]
    panels = [(name, found) for name in wanted if (found := select_curves(curves, name))]
    if not panels or max(len(curve) for _, found in panels for curve in found.values()) < 2:
        return None
    figure = Figure(figsize=(5 * len(panels), 3.4), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        factor = 100 if find_metric(name).unit == "percent" else 1
        for stage, curve in found.items():
            steps, values = zip(*curve, strict=True)
            marker = "o" if stage == "test" or len(curve) < 30 else ""
            look = {"marker": marker, "markersize": 3, "color": COLOURS[stage]}
            axes.plot(steps, [factor * value for value in values], label=stage, **look)
        axes.set(xlabel="optimizer step", ylabel=f"{name}, %" if factor == 100 else name)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    path = folder / "pictures" / "curves.png"
    path.parent.mkdir(exist_ok=True)
    with write_atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def read_curves(path: Path) -> dict[str, Curve]:
    """Read steps and values of each column of numbers."""
    curves: dict[str, Curve] = {}
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for name, value in row.items():
                    if value and name not in ("step", "epoch"):
                        curves.setdefault(name, []).append((int(row["step"]), float(value)))
    return curves


def select_curves(curves: dict[str, Curve], name: str) -> dict[str, Curve]:
    """Return the curves of a metric by their stage."""
    return {stage: curves[f"{stage}/{name}"] for stage in COLOURS if f"{stage}/{name}" in curves}
