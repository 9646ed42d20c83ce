"""Arrange what is known of finished runs as the sections of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import PurePath
from statistics import fmean
from typing import Any

from vitlab.monitors import find_metric, format_metric
from vitlab.reports.comparison import ACCURACY, Pair, Recipe, list_seeds, spell_count
from vitlab.reports.finished import FinishedRun
from vitlab.reports.intervals import half_width, wilson_interval
from vitlab.reports.page import samples as of_samples
from vitlab.reports.page.blocks import Block, Charts, Folded, Gallery, Item, Matrix, Section, Table, Text
from vitlab.reports.page.charts import Series, build_chart
from vitlab.reports.page.samples import Bin, Sample
from vitlab.reports.run import read_result

MOST_ANSWERS, MOST_FOLDED = 4, 40  # sentences on the first screen, and behind it
MOST_CLASSES, MOST_IN_MATRIX = 200, 20  # in tables
PAIRS = 5  # of classes that are confused
MAPS = {"relevance": "relevance", "rollout": "attention rollout", "random": "random order"}


@dataclass(frozen=True)
class MapScores:
    """Deletion and insertion of one kind of heat map: the mean curves, and the scores of each image."""

    deletion: Sequence[float]
    insertion: Sequence[float]
    deletion_scores: Sequence[float]
    insertion_scores: Sequence[float]


@dataclass(frozen=True)
class Evidence:
    """What the images and the weights of the looked-at run give: pictures by the index of the sample; the predictions
    of `scored` samples before and after the temperature, of which `agreed` are as the test had them; heat maps by kind
    of some samples; how faithful each kind is; and rows of what a prediction costs. `missing` says what could not be
    had, and why."""

    pictures: Mapping[int, str] = field(default_factory=dict)
    before: Sequence[Bin] = ()
    after: Sequence[Bin] = ()
    scored: int = 0
    agreed: int = 0
    maps: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    faithfulness: Mapping[str, MapScores] = field(default_factory=dict)
    costs: Sequence[dict[str, str]] = ()
    missing: Sequence[str] = ()


# -- what was asked, and what came out


def ask(recipes: Sequence[Recipe], metric: str, varied: Sequence[str], is_regression: bool) -> str:
    """Say what the runs were to tell."""
    if is_regression:
        return f"Does one recipe give the same {metric} as before? {' against '.join(one.label for one in recipes)}."
    if len(recipes) == 1:
        return f"How good is {recipes[0].label}, with {list_seeds(recipes[0])}?"
    told = f" They differ in {', '.join(varied)}." if varied else ""
    return f"Which of {spell_count(len(recipes))} recipes is best in {metric}?{told}"


def answer_alone(recipe: Recipe, metric: str) -> str:
    """Say how good one recipe is, and how sure that is."""
    values, first = recipe.values(metric), next(iter(recipe.runs.values()))
    percent = find_metric(metric).unit == "percent"
    if len(values) > 1:
        half = half_width(values)
        spread = f"{100 * half:.2f} points" if percent else f"{half:.4g}"
        return (
            f"{recipe.label} reaches {metric} {format_metric(metric, fmean(values))} ± {spread} (mean of "
            f"{spell_count(len(values))} seeds; half of Student's 95 % interval)."
        )
    told = f"{recipe.label} reaches {metric} {format_metric(metric, values[0])}"
    if metric == ACCURACY and (n := len(first.samples)):
        low, high = wilson_interval(values[0] * n, n)
        told += f" on {n:,} test samples; with other samples of this kind it would lie between {low:.1%} and {high:.1%}"
    return f"{told}. One seed: this is a statement on one model, not on its recipe."


def tell_results(
    asked: str, answers: Sequence[str], notes: Sequence[str], means: Sequence[dict[str, Any]], metric: str
) -> Section:
    """Show the question, the answers, and every metric."""
    rows = [
        {
            "recipe": row["recipe"],
            "metric": row["metric"],
            "mean": format_metric(row["metric"], row["mean"]) if isfinite(row["mean"]) else "not finite",
            "95 % interval over seeds": " to ".join(format_metric(row["metric"], row[e]) for e in ends)
            if (ends := [end for end in ("student_low", "student_high") if end in row])
            else "one seed",
        }
        for row in means
    ]
    first, more = [row for row in rows if row["metric"] == metric], answers[MOST_ANSWERS:]
    blocks: list[Block] = [Text(asked), *(Text(answer, "lead") for answer in answers[:MOST_ANSWERS])]
    blocks += [Text(note, "note") for note in notes]
    if more:
        left = f" {len(more) - MOST_FOLDED} are left out." * (len(more) > MOST_FOLDED)
        told = [Text(answer) for answer in more[:MOST_FOLDED]]
        blocks.append(Folded(f"{len(more)} more comparisons.{left}", told))
    blocks.append(Table(f"{metric} of each recipe, best first", first))
    if len(rows) > len(first):
        blocks.append(Folded("every metric", [Table("Every metric of each recipe", rows)]))
    return Section("results", "What was asked, and what came out", blocks)


# -- the model that is looked at


def draw_item(sample: Sample, pictures: Mapping[int, str], *more: str) -> Item | None:
    """Show a sample with its classes; None where its picture is missing."""
    if sample.index not in pictures:
        return None
    said = f"said {sample.predicted} {sample.probability:.1%}"
    name = PurePath(sample.name).name
    told = f"test image {sample.index}, {name}: is {sample.true}, {said}"
    lines = [f"is {sample.true}", said, *more]
    return Item([(pictures[sample.index], told)], lines, "right" if sample.is_right else "wrong")


def draw_gallery(title: str, items: Sequence[Item | None]) -> list[Block]:
    shown = [item for item in items if item is not None]
    return [Gallery(title, shown)] if shown else []


def tell_confusions(samples: Sequence[Sample], names: Sequence[str], found: Evidence, most: int) -> Section:
    """Show the confusion matrix, and the pairs of classes that are confused most, with images."""
    wrong = [one for one in samples if not one.is_right]
    pairs = of_samples.find_confused_pairs(samples, PAIRS)
    some = list(
        dict.fromkeys(name for true, said, _ in of_samples.find_confused_pairs(samples, 200) for name in (true, said))
    )
    shown = list(names) if len(names) <= MOST_IN_MATRIX else [name for name in names if name in some[:MOST_IN_MATRIX]]
    counts = {(true, said): 0 for true in shown for said in shown}
    for one in samples:
        if (one.true, one.predicted) in counts:
            counts[one.true, one.predicted] += 1
    caption = f"Test samples by true and predicted class: {len(wrong):,} of {len(samples):,} are wrong"
    if len(shown) < len(names):
        caption += f"; the {len(shown)} most confused of {len(names)} classes"
    blocks: list[Block] = (
        [Matrix(caption, shown, [[counts[true, said] for said in shown] for true in shown])] if shown else []
    )
    for true, said, own in pairs:
        title = f"{true} taken for {said}: {len(own):,}"
        blocks += draw_gallery(title, [draw_item(one, found.pictures) for one in own[:most]])
    rows = of_samples.measure_classes(samples, names)
    left = f", the {MOST_CLASSES} lowest of {len(rows)}" * (len(rows) > MOST_CLASSES)
    blocks.append(Table(f"Each class, the lowest F1 first{left}", rows[:MOST_CLASSES]))
    return Section("classes", "Classes, and which are confused", blocks)


def tell_reliability(run: FinishedRun, samples: Sequence[Sample], found: Evidence) -> Section:
    """Show whether the probabilities hold, before and after the temperature."""
    calibration = (read_result(run.folder) or {}).get("calibration")
    after = found.after or of_samples.bin_predictions(
        [one.probability for one in samples], [one.is_right for one in samples]
    )
    told = "This run was not calibrated: its probabilities are those of the model as it was trained."
    if calibration:
        told = f"Logits are divided by the temperature {calibration['temperature']:.3f}, fitted on validation."
    if calibration and found.before:
        ece = [of_samples.measure_ece(bins) for bins in (found.before, found.after)]
        told += f" Calibration error on the test: {ece[0]:.2%} before, {ece[1]:.2%} after."
    blocks: list[Block] = [Text(told)]
    if found.scored:
        told = f"The saved weights were run on {found.scored:,} of {len(samples):,} test images again"
        blocks.append(Text(f"{told}; {found.agreed:,} predictions are as in the test.", "note"))
    chart = of_samples.draw_reliability(found.before if calibration else (), after)
    rows = [
        {"mean probability": f"{one.probability:.1%}", "right": f"{one.right:.1%}", "samples": f"{one.size:,}"}
        for one in after
    ]
    blocks += [Charts([chart])] if chart else []
    blocks.append(Folded("how many samples", [Table("Predictions by their probability", rows)]))
    return Section("reliability", "How far probabilities can be trusted", blocks)


def tell_none_of_these(run: FinishedRun, samples: Sequence[Sample], found: Evidence, most: int) -> Section:
    """Show how many test images are said to be of none of the classes, and which."""
    known = [one for one in samples if one.novelty is not None]
    if not known:
        return Section("none", "None of these")
    far = sorted(known, key=lambda one: -(one.novelty or 0))
    flagged = [one for one in far if (one.novelty or 0) > 1]
    wrong = sum(not one.is_right for one in flagged)
    rate = ((read_result(run.folder) or {}).get("calibration") or {}).get("false_alarm_rate")
    told = (
        f"{len(flagged):,} of {len(known):,} test images ({len(flagged) / len(known):.1%}) lie farther from the "
        f"classes than the threshold, novelty 1, and {wrong:,} of these are misclassified."
    )
    if rate is not None:
        told += (
            f" The threshold is where {rate:.0%} of the validation images are flagged, so a similar share is expected."
        )
    chart = of_samples.draw_novelty(known)
    items = [draw_item(one, found.pictures, f"novelty {one.novelty:.2f}") for one in far[:most]]
    blocks: list[Block] = [Text(told), *([Charts([chart])] if chart else [])]
    return Section("none", "None of these", [*blocks, *draw_gallery("the highest novelty", items)])


def tell_worst(worst: Sequence[Sample], disagreed: Sequence[tuple[Sample, str]], found: Evidence) -> Section:
    """Show the samples of the highest loss, and those on which the models disagree most."""
    items = [draw_item(one, found.pictures, f"loss {one.loss:.2f}") for one in worst]
    split = [draw_item(one, found.pictures, votes) for one, votes in disagreed]
    blocks = [*draw_gallery("the highest loss", items), *draw_gallery("where the models disagree most", split)]
    told = {one.index: f"loss {one.loss:.4f}" for one in worst} | {one.index: votes for one, votes in disagreed}
    rows = [
        {"image": one.index, "file": one.name, "is": one.true, "said": one.predicted, "why it is here": told[one.index]}
        for one in {one.index: one for one in [*worst, *(one for one, _ in disagreed)]}.values()
    ]
    blocks.append(Folded("their files", [Table("Files of the hardest images", rows)]))
    return Section("worst", "The hardest images", blocks)


def tell_heat_maps(samples: Mapping[int, Sample], found: Evidence) -> Section:
    """Show where the model looks, and how faithful each kind of map is."""
    if not found.maps:
        return Section("maps", "Where the model looks")
    items = []
    for index, maps in found.maps.items():
        told = f"test image {index}, said {samples[index].predicted}"
        shown = [(uri, f"{MAPS.get(kind, kind)} of {told}") for kind, uri in maps.items()]
        lines = [
            f"is {samples[index].true}",
            f"said {samples[index].predicted}",
            ", ".join(MAPS.get(k, k) for k in maps),
        ]
        items.append(Item(shown, lines, "right" if samples[index].is_right else "wrong"))
    count = max(len(one.deletion_scores) for one in found.faithfulness.values())
    rows = [
        {"map": MAPS[kind]}
        | {
            f"{name} score": f"{fmean(scores):.3f} ± {half_width(scores):.3f}"
            for name, scores in (("deletion", one.deletion_scores), ("insertion", one.insertion_scores))
        }
        for kind, one in found.faithfulness.items()
    ]
    charts = []
    for name, verb in (("deletion", "removed"), ("insertion", "added")):
        curves = [(MAPS[kind], getattr(one, name)) for kind, one in found.faithfulness.items()]
        series = [
            Series(label, [(k / (len(curve) - 1), p) for k, p in enumerate(curve)], colour=colour, dashed=colour == 2)
            for colour, (label, curve) in enumerate(curves)
        ]
        title = f"{name.capitalize()}: brightest patches {verb} first"
        charts.append(build_chart(title, series, "share of patches", "probability of the class", y_bounds=(0.0, 1.0)))
    told = (
        "A map is faithful if the probability of the predicted class falls fast while the patches it marks are removed "
        "(a low deletion score), and rises fast while they are added to a blurred image (a high insertion score; "
        "Petsiuk et al., 2018, arXiv:1806.07421). A map that does no better than a random order explains nothing."
    )
    scores = Table(f"Area under the curve, mean of {count} test images and half of its 95 % interval", rows)
    return Section(
        "maps", "Where the model looks", [Text(told), Gallery("", items), scores, Charts([c for c in charts if c])]
    )


def name_answers(pairs: Sequence[Pair]) -> list[str]:
    """Give the sentence of each comparison, the largest difference first."""
    return [pair.sentence() for pair in sorted(pairs, key=lambda pair: -abs(pair.gain))]
