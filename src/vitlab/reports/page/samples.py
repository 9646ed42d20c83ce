"""Read what finished models say of each test sample, and find those that are worth a look.

n samples
"""

import csv
from collections import Counter
from collections.abc import Sequence
from math import floor, log
from pathlib import Path
from typing import Any, NamedTuple

from vitlab.errors import CheckpointError
from vitlab.reports.intervals import wilson_interval
from vitlab.reports.page.charts import Chart, Series, build_chart

BINS = 15  # of a reliability diagram, as in the calibration error that a run reports
PER_UNIT, MOST_NOVELTY = (
    10,
    4,
)  # bars of a unit of novelty, and the novelty from which on, and below whose negative, they are one
ONE_CLASS = {"index", "name", "true", "predicted", "probability", "loss"}


class Sample(NamedTuple):
    """A test sample: its true class, and what a model says, with the calibrated probability and the loss. `novelty` is
    above 1 for an image that is probably of none of the classes; None where that is not known."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a sample has no use for
    name: str
    true: str
    predicted: str
    probability: float
    loss: float
    novelty: float | None

    @property
    def is_right(self) -> bool:
        return self.true == self.predicted


class Bin(NamedTuple):
    """Predictions of similar probability: how many, their mean probability, and the share of them that is right."""

    size: int
    probability: float
    right: float


def read_samples(folder: Path) -> list[Sample]:
    """Read the test samples of a run by their index; none for a task that does not name one class of each. Raises
    CheckpointError for a damaged file."""
    path = folder / "test_predictions.csv"
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if not set(rows.fieldnames or ()) >= ONE_CLASS:
                return []
            return [parse_row(row) for row in rows]
    except (csv.Error, ValueError, TypeError, LookupError) as error:
        raise CheckpointError(f"{path} is damaged: it is not as the run wrote it") from error


def parse_row(row: dict[str, Any]) -> Sample:
    novelty = float(row["novelty"]) if row.get("novelty") else None
    numbers = float(row["probability"]), float(row["loss"])
    return Sample(int(row["index"]), row["name"], row["true"], row["predicted"], *numbers, novelty)


def read_class_names(folder: Path, samples: Sequence[Sample]) -> list[str]:
    """Read the classes in their order, from test_per_class.csv; else those of the samples, sorted."""
    path = folder / "test_per_class.csv"
    there = {name for one in samples for name in (one.true, one.predicted)}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            names = [row.get("class", "") for row in csv.DictReader(file)]
        if there <= set(names):
            return names
    return sorted(there)


def find_confused_pairs(samples: Sequence[Sample], most: int) -> list[tuple[str, str, list[Sample]]]:
    """Find the pairs of a true class and another one that is predicted most often in its place, each with its samples,
    the surest first."""
    pairs: dict[tuple[str, str], list[Sample]] = {}
    for one in samples:
        if not one.is_right:
            pairs.setdefault((one.true, one.predicted), []).append(one)
    ranked = sorted(pairs.items(), key=lambda pair: -len(pair[1]))[:most]
    return [(*pair, sorted(own, key=lambda one: -one.probability)) for pair, own in ranked]


def measure_classes(samples: Sequence[Sample], names: Sequence[str]) -> list[dict[str, str]]:
    """Measure precision, recall with its 95 % interval, and F1 of each class that has test images or is predicted; the
    lowest F1 first."""
    true, called = Counter(one.true for one in samples), Counter(one.predicted for one in samples)
    right = Counter(one.true for one in samples if one.is_right)
    rows = []
    for name in (name for name in names if true[name] + called[name]):
        row = {"class": name, "images": f"{true[name]:,}", "recall": "", "recall, 95 % interval": "", "precision": ""}
        if true[name]:
            low, high = wilson_interval(right[name], true[name])
            row |= {"recall": f"{right[name] / true[name]:.1%}", "recall, 95 % interval": f"{low:.1%} to {high:.1%}"}
        if called[name]:
            row["precision"] = f"{right[name] / called[name]:.1%}"
        f1 = 2 * right[name] / (true[name] + called[name])
        rows.append((f1, {**row, "F1": f"{f1:.1%}"}))
    return [row for _, row in sorted(rows, key=lambda one: one[0])]


def find_disagreements(runs: Sequence[Sequence[Sample]]) -> list[tuple[int, Counter[str]]]:
    """Find the samples on which models disagree, by the entropy of their votes, the highest first: the index, and how
    many models vote for each class."""
    votes: dict[int, Counter[str]] = {}
    for samples in runs:
        for one in samples:
            votes.setdefault(one.index, Counter())[one.predicted] += 1

    def measure_entropy(counts: Counter[str]) -> float:
        total = counts.total()
        return -sum(n / total * log(n / total) for n in counts.values())

    return sorted(
        ((index, counts) for index, counts in votes.items() if len(counts) > 1),
        key=lambda one: (-measure_entropy(one[1]), one[0]),
    )


def bin_predictions(probabilities: Sequence[float], right: Sequence[bool]) -> list[Bin]:
    """Sort predictions into bins of equal width, without the empty ones (Guo et al., 2017, arXiv:1706.04599)."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for p, good in zip(probabilities, right, strict=True):
        bins.setdefault(min(BINS - 1, int(p * BINS)), []).append((p, good))
    return [
        Bin(len(own), sum(p for p, _ in own) / len(own), sum(good for _, good in own) / len(own))
        for _, own in sorted(bins.items())
    ]


def measure_ece(bins: Sequence[Bin]) -> float:
    """Compute the expected calibration error: the mean distance of probability and share that is right."""
    return sum(one.size * abs(one.probability - one.right) for one in bins) / sum(one.size for one in bins)


def draw_reliability(before: Sequence[Bin], after: Sequence[Bin]) -> Chart | None:
    """Draw how often predictions of similar probability are right; `before` the temperature may be unknown."""
    series = [
        Series(label, [(one.probability, one.right) for one in bins], colour=colour, dashed=colour == 1, kind="dots")
        for label, bins, colour in (("after the temperature", after, 0), ("before", before, 1))
    ]
    x_label, whole = "mean probability of the predicted class", (0.0, 1.0)
    title = "How often predictions are right, by their probability"
    return build_chart(
        title, series, x_label, "share that is right", percent=True, x_bounds=whole, y_bounds=whole, diagonal=True
    )


def draw_novelty(samples: Sequence[Sample]) -> Chart | None:
    """Draw how many test samples have which novelty, of which those above 1 are said to be of none of the classes."""
    values = [one.novelty for one in samples if one.novelty is not None]
    if not values:
        return None
    most = MOST_NOVELTY * PER_UNIT
    counts = Counter(max(-most, min(most, floor(value * PER_UNIT))) for value in values)
    places = range(min(0, *counts), max(2 * PER_UNIT, *counts) + 1)
    points = [((place + 0.5) / PER_UNIT, float(counts[place])) for place in places]
    series = [
        Series("one of the classes", [p for p in points if p[0] <= 1], kind="bars"),
        Series("none of these", [p for p in points if p[0] > 1], colour=1, kind="bars"),
    ]
    return build_chart("Novelty of the test images", series, "novelty", "images")
