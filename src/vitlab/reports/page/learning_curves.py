"""Draw how recipes learn: the metrics of their runs over the steps, the mean of the seeds in a band of all of them."""

from collections.abc import Sequence
from statistics import fmean

from vitlab.monitors import find_metric
from vitlab.reports.comparison import Recipe
from vitlab.reports.curves import METRICS, Curve, read_curves
from vitlab.reports.page.charts import COLOURS, Chart, Series, build_chart

STAGES = ("train", "val")


def draw_learning_curves(recipes: Sequence[Recipe]) -> list[Chart]:
    """Draw the loss, and the metric that the first recipe was judged by, of at most `COLOURS` recipes. The curves of
    training are left out where there are more than two recipes."""
    recipes = recipes[:COLOURS]
    monitor = str(next(iter(recipes[0].runs.values())).settings["monitor"]).partition("/")[2]
    curves = [[read_curves(run.folder / METRICS) for run in recipe.runs.values()] for recipe in recipes]
    charts = []
    for name in dict.fromkeys(["loss", monitor]):
        series = [
            build_series(recipe.label, stage, [curve.get(f"{stage}/{name}", []) for curve in own], number)
            for number, (recipe, own) in enumerate(zip(recipes, curves, strict=True))
            for stage in (STAGES if len(recipes) <= 2 else STAGES[1:])
        ]
        percent = find_metric(name).unit == "percent"
        charts.append(build_chart(f"{name} over training", series, "optimizer step", name, percent=percent))
    return [chart for chart in charts if chart is not None]


def build_series(label: str, stage: str, curves: Sequence[Curve], colour: int) -> Series:
    """Summarise the curves of a recipe's seeds at the steps that all of them have."""
    values = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, values)))
    points = [(float(step), fmean(one[step] for one in values)) for step in steps]
    ends = [(float(step), min(one[step] for one in values), max(one[step] for one in values)) for step in steps]
    stage_name = {"train": "training", "val": "validation"}[stage]
    return Series(f"{label}, {stage_name}", points, ends if len(values) > 1 else (), colour, dashed=stage == "train")
