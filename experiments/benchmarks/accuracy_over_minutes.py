"""Validation accuracy of finished runs over the minutes they took, as a picture, a table and a CSV beside the picture.

    python experiments/benchmarks/accuracy_over_minutes.py OUTPUT.png NAME=RUN_FOLDER [NAME=RUN_FOLDER ...]

Minutes are of the wall clock, validation included, as each run's metrics.csv has them.
"""

import csv
import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

SHOWN = (1, 2, 5, 10, 20, 30, 45, 60)  # minutes in the table


def curve(run: Path) -> tuple[list[float], list[float]]:
    """Minutes, and validation accuracy in %."""
    with open(run / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("val/acc1") and row.get("train/seconds")]
    return [float(row["train/seconds"]) / 60 for row in rows], [100 * float(row["val/acc1"]) for row in rows]


def main() -> None:
    if len(sys.argv) < 3 or not all("=" in argument for argument in sys.argv[2:]):
        sys.exit(__doc__)
    runs = {name: Path(folder) for name, _, folder in (argument.partition("=") for argument in sys.argv[2:])}
    figure = Figure(figsize=(6.4, 4))
    axes = figure.add_subplot()
    print("| run | " + " | ".join(f"{minutes} min" for minutes in SHOWN) + " | end | test |")
    print("|---|" + "---|" * (len(SHOWN) + 2))
    points = [("run", "minutes", "val/acc1")]
    for name, run in runs.items():
        minutes, accuracy = curve(run)
        points += [(name, f"{m:.2f}", f"{a:.2f}") for m, a in zip(minutes, accuracy, strict=True)]
        axes.plot(minutes, accuracy, label=name)
        row = []
        for shown in SHOWN:
            done = [a for m, a in zip(minutes, accuracy, strict=True) if m <= shown]
            row.append(f"{done[-1]:.1f}" if done and minutes[-1] > shown - 1 else "")
        test = json.loads((run / "result.json").read_text())["test"]["test/acc1"]
        print(f"| {name} | " + " | ".join(row) + f" | {accuracy[-1]:.1f} after {minutes[-1]:.0f} min | {test:.2%} |")
    axes.set(xlabel="minutes", ylabel="validation accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(sys.argv[1], dpi=110, bbox_inches="tight")
    with open(Path(sys.argv[1]).with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(points)


if __name__ == "__main__":
    main()
