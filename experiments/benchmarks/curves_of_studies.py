"""Validation curves of finished studies over seeds, as a picture and a CSV beside it: a column for each study, the loss
above the share of right texts.

    python experiments/benchmarks/curves_of_studies.py OUTPUT.png SWEEP_FOLDER [SWEEP_FOLDER ...]

A study varies one key beside the seed. A line is the mean over its seeds, a band its 95 % interval by Student's t.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from vitlab.reports.intervals import half_width

METRICS = {"val/loss": "validation loss, nats a token", "val/exact": "right texts, %"}
OURS = {"seconds", "status", "folder", "seed", *METRICS}  # columns of results.csv that are not what was varied


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def curves(sweep: Path, metric: str) -> dict[str, dict[int, list[float]]]:
    """Of each value of the key that was varied, the best first, and each validated step, the values of all seeds."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    jobs = rows_of(sweep / "results.csv")
    (varied,) = (key for key in jobs[0].keys() - OURS if len({job[key] for job in jobs}) > 1)
    for job in jobs:
        for row in rows_of(sweep / job["folder"] / "metrics.csv"):
            if row[metric]:
                found[f"{varied.split('.')[-1]}={job[varied]}"][int(row["step"])].append(float(row[metric]))
    return found


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sweeps = [Path(folder) for folder in sys.argv[2:]]
    figure = Figure(figsize=(3.4 * len(sweeps), 5), layout="constrained")
    grid = figure.subplots(len(METRICS), len(sweeps), squeeze=False, sharex=True, sharey="row")
    points = [("study", "option", "step", "metric", "mean", "±", "seeds")]
    for column, sweep in enumerate(sweeps):
        for axes, (metric, words) in zip(grid[:, column], METRICS.items(), strict=True):
            percent = 100 if metric == "val/exact" else 1
            for name, steps in curves(sweep, metric).items():
                means = [percent * mean(values) for values in steps.values()]
                halves = [percent * half_width(values) for values in steps.values()]
                axes.plot(list(steps), means, marker=".", label=name)
                low = [max(0.0, m - h) for m, h in zip(means, halves, strict=True)]
                high = [m + h if percent == 1 else min(100.0, m + h) for m, h in zip(means, halves, strict=True)]
                axes.fill_between(list(steps), low, high, alpha=0.25)
                for (step, values), m, h in zip(steps.items(), means, halves, strict=True):
                    points.append((sweep.name, name, str(step), metric, f"{m:.4f}", f"{h:.4f}", str(len(values))))
            axes.set_ylabel(words if column == 0 else "")
            axes.grid(alpha=0.3)
        grid[0, column].legend(title=sweep.name, fontsize=8, title_fontsize=9)
        grid[-1, column].set_xlabel("optimizer steps")
    figure.savefig(sys.argv[1], dpi=90)
    with open(Path(sys.argv[1]).with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(points)


if __name__ == "__main__":
    main()
