"""Compare recipes over their seeds, and models over their test samples, in sentences and tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from statistics import fmean

from vitlab.errors import ConfigError, DataError
from vitlab.monitors import better, find_metric, format_metric
from vitlab.reports.differences import (
    LEVEL,
    count_seeds_needed,
    crossed_interval,
    holm,
    mcnemar_p,
    sign_flip_p,
    student_p,
)
from vitlab.reports.finished import FinishedRun
from vitlab.reports.intervals import Interval, half_width

VERDICT = 6  # seeds from which on the exact test can give p < 0.05
ACCURACY = "test/acc1"  # the metric of which single samples tell
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
Samples = dict[tuple[str, ...], tuple[str, str]]


@dataclass(frozen=True)
class Recipe:
    """Runs that differ in their seed alone, by their seeds."""

    label: str
    runs: dict[int, FinishedRun]

    def values(self, metric: str, seeds: Sequence[int] | None = None) -> list[float]:
        """Return a metric of each seed. Raises ConfigError for a metric that a run does not have."""
        chosen = [self.runs[seed] for seed in (sorted(self.runs) if seeds is None else seeds)]
        for run in chosen:
            if metric not in run.metrics:
                raise ConfigError(f"{run.folder} has no metric {metric}; it has {', '.join(sorted(run.metrics))}")
            if not isfinite(run.metrics[metric]):
                raise ConfigError(
                    f"{metric} of {run.folder} is not finite; leave the run out, or compare another metric"
                )
        return [run.metrics[metric] for run in chosen]


@dataclass(frozen=True)
class Pair:
    """Two recipes, and how much the second is better than the first in a metric, for each seed that both have.

    `gain` is the mean of the `gains`, `half` half of Student's interval. `p` is the p-value of the `test`: the exact
    sign-flip test from six seeds on, Student's t test with fewer, McNemar's of two models with one seed each. It is
    None for metrics of two models other than the accuracy, and where there are no samples to compare. `adjusted` is p
    after Holm's adjustment for all `comparisons` together. `counts` are the samples that both, only the first, only
    the second and none classify correctly, over the seeds.
    """

    first: Recipe
    second: Recipe
    metric: str
    gains: list[float]
    p: float | None
    counts: tuple[int, int, int, int] | None
    interval: Interval | None
    adjusted: float | None = None
    comparisons: int = 1

    @property
    def gain(self) -> float:
        return fmean(self.gains)

    @property
    def half(self) -> float:
        return half_width(self.gains)

    @property
    def is_of_models(self) -> bool:
        return len(self.gains) == 1

    @property
    def test(self) -> str | None:
        if self.p is None:
            return None
        return "McNemar" if self.is_of_models else "sign flip" if len(self.gains) >= VERDICT else "Student's t"

    @property
    def is_shown(self) -> bool:
        """Whether a difference is more than chance, all comparisons taken together."""
        return self.adjusted is not None and self.adjusted <= LEVEL

    def sentence(self) -> str:
        """Say which is better, and how sure that is."""
        better_one, other = (self.second, self.first) if self.gain > 0 else (self.first, self.second)
        return self.compare_models(better_one, other) if self.is_of_models else self.compare_recipes(better_one, other)

    def compare_recipes(self, better_one: Recipe, other: Recipe) -> str:
        seeds, needed = len(self.gains), count_seeds_needed(self.comparisons)
        sure = f"{spell_count(seeds)} seeds; exact sign-flip test: {self.adjusted_p}"
        if seeds < VERDICT:
            sure = (
                f"{spell_count(seeds)} seeds; if differences over seeds are normally distributed, Student's t test: "
                f"{self.adjusted_p}"
            )
        if seeds < needed:
            sure += f"; the exact test needs {spell_count(needed)} seeds for p < 0.05"
        mean, unit = abs(self.gain), self.unit
        if self.is_shown:
            size = f"{self.amount(mean)} ± {self.amount(self.half)}{unit}"
            return f"{better_one.label} is better than {other.label} by {size} in {self.metric} ({sure})."
        low, high = Interval(mean - self.half, mean + self.half)
        if unit:  # of a share
            widest = max(1.0, *map(abs, self.gains))
            low, high = Interval(low, high).clip(-widest, widest)
        return (
            f"No difference between {self.first.label} and {self.second.label} is shown in {self.metric}: on average, "
            f"{better_one.label} is ahead by {self.amount(mean)}{unit}, with a 95 % interval from {self.amount(low)} "
            f"to {self.amount(high)} ({sure}). {spell_count(seeds).capitalize()} seeds that vary so much could not "
            f"have shown less than {self.amount(self.half)}{unit}."
        )

    def compare_models(self, better_one: Recipe, other: Recipe) -> str:
        figures = " against ".join(
            f"{format_metric(self.metric, one.values(self.metric)[0])} ({one.label})" for one in (better_one, other)
        )
        limit = "One seed each: this is a statement on two models, not on their recipes, which need six seeds each"
        if self.counts is None or self.p is None:
            return f"{self.metric}: {figures}. {limit}."
        both, first, second, none = self.counts
        ahead, behind = (second, first) if better_one is self.second else (first, second)
        verdict = "differ" if self.is_shown else "are not shown to differ"
        return (
            f"The two models {verdict} (McNemar: {self.adjusted_p}): {self.metric} {figures}; of "
            f"{both + first + second + none:,} test samples {better_one.label} alone is right on {ahead:,}, "
            f"{other.label} alone on {behind:,}. {limit}."
        )

    @property
    def adjusted_p(self) -> str:
        assert self.adjusted is not None
        written = f"p = {self.adjusted:.2g}" if self.adjusted >= 0.0001 else "p < 0.0001"
        many = f" after Holm's adjustment for {spell_count(self.comparisons)} comparisons"
        return written + many * (self.comparisons > 1)

    @property
    def unit(self) -> str:
        return " points" if find_metric(self.metric).unit == "percent" else ""

    def amount(self, value: float, *, sign: bool = False) -> str:
        """Write a difference: points for shares, else the number."""
        scaled = round(100 * value, 2) if self.unit else float(f"{value:.4g}")
        return f"{scaled + 0.0:{'+' if sign else ''}{'.2f' if self.unit else '.4g'}}"


def compare(recipes: Sequence[Recipe], metric: str) -> list[Pair]:
    """Compare each two recipes. Raises ConfigError for two without a common seed, and DataError for two that were
    tested on other samples."""
    pairs = [compare_two(first, second, metric) for first, second in combinations(recipes, 2)]
    tested = [pair for pair in pairs if pair.p is not None]
    adjusted = dict(zip(map(id, tested), holm([pair.p for pair in tested if pair.p is not None]), strict=True))
    return [replace(pair, adjusted=adjusted.get(id(pair)), comparisons=len(tested)) for pair in pairs]


def choose_metric(recipes: Sequence[Recipe]) -> tuple[str, list[str]]:
    """Choose the test metric of the name that all runs were judged by; where they were judged by several, the accuracy
    if all have it, and else the first one, with a sentence that says so."""
    runs = [run for recipe in recipes for run in recipe.runs.values()]
    monitors = list(dict.fromkeys(run.monitor for run in runs))
    if len(monitors) == 1:
        return monitors[0], []
    metric = ACCURACY if all(ACCURACY in run.metrics for run in runs) else monitors[0]
    judged = ", ".join(dict.fromkeys(str(run.settings["monitor"]) for run in runs))
    return metric, [
        f"The runs were judged by different metrics ({judged}); {metric} is compared. metric= sets another."
    ]


def compare_two(first: Recipe, second: Recipe, metric: str) -> Pair:
    single = len(first.runs) == len(second.runs) == 1
    seeds = sorted(first.runs.keys() & second.runs.keys())
    if not seeds and not single:
        raise ConfigError(
            f"{first.label} and {second.label} have no seed in common: {list_seeds(first)} against {list_seeds(second)}"
            "; train both with the same seeds"
        )
    pairs = [(first.runs[seed], second.runs[seed]) for seed in seeds]
    if single:
        pairs = [(next(iter(first.runs.values())), next(iter(second.runs.values())))]
    for a, b in pairs:
        check_samples(a, b)
    sign = 1 if better(metric) == "max" else -1
    before = first.values(metric, [a.seed for a, _ in pairs])
    after = second.values(metric, [b.seed for _, b in pairs])
    gains = [sign * (b - a) for a, b in zip(before, after, strict=True)]
    counts = count_answers(pairs)
    p = None
    if len(gains) > 1:
        p = sign_flip_p(gains) if len(gains) >= VERDICT else student_p(gains)
    elif counts is not None and metric == ACCURACY:
        p = mcnemar_p(counts[1], counts[2])
    return Pair(first, second, metric, gains, p, counts, bound_gain(pairs, metric))


def check_samples(a: FinishedRun, b: FinishedRun) -> None:
    """Raise DataError for runs that were not tested on the same samples, and ConfigError for one that left some out."""
    for run in (a, b):
        if run.partial:
            raise ConfigError(f"{run.folder} was not tested on every sample ({', '.join(run.partial)}); leave it out")
    truth = [{key: true for key, (true, _) in run.samples.items()} for run in (a, b)]
    if a.samples and b.samples and truth[0] != truth[1]:
        common = len(truth[0].items() & truth[1].items())
        raise DataError(
            f"{a.folder} and {b.folder} were not tested on the same samples: {len(truth[0]):,} and {len(truth[1]):,}, "
            f"{common:,} of them the same; compare runs of the same data and split"
        )


def is_right(run: FinishedRun) -> dict[tuple[str, ...], bool]:
    return {key: true == predicted for key, (true, predicted) in run.samples.items()}


def count_answers(pairs: Sequence[tuple[FinishedRun, FinishedRun]]) -> tuple[int, int, int, int] | None:
    """Count the samples that both, only the first, only the second and none classify correctly, over all pairs."""
    if not all(a.samples and b.samples for a, b in pairs):
        return None
    rights = [(is_right(a), is_right(b)) for a, b in pairs]
    kinds = [(right, second[key]) for first, second in rights for key, right in first.items()]
    return tuple(kinds.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False)))  # type: ignore[return-value]  # four


def bound_gain(pairs: Sequence[tuple[FinishedRun, FinishedRun]], metric: str) -> Interval | None:
    """Return the interval of the gain in accuracy over seeds and samples; None where the metric is another one, or
    seeds were tested on different samples."""
    keys = list(pairs[0][0].samples)
    if metric != ACCURACY or not keys or any(run.samples.keys() != set(keys) for pair in pairs for run in pair):
        return None
    rights = [(is_right(a), is_right(b)) for a, b in pairs]
    return crossed_interval([[int(b[key]) - int(a[key]) for key in keys] for a, b in rights])


def list_seeds(recipe: Recipe) -> str:
    return f"seed{'s' * (len(recipe.runs) > 1)} {', '.join(map(str, sorted(recipe.runs)))}"


def spell_count(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def is_run_key(key: str) -> bool:
    """Whether runs of one recipe may differ in a key of their configs: their name, and their seeds."""
    return key == "name" or key.rpartition(".")[2] == "seed"
