"""Write a report of finished runs: one HTML page that shows what was asked, what came out, and how sure that is.

B batch, C channels, H W image height and width, K classes, N patches
"""

import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from omegaconf import DictConfig
from rich.progress import track
from torch import Tensor

from vitlab import __version__
from vitlab.atomic_files import write_whole
from vitlab.checkpoints.run_folder import run_folder
from vitlab.config.job import Job
from vitlab.config.stored_config import is_machine_key
from vitlab.counting.operations import costs, total
from vitlab.data.batches.batch import Sample as ReadSample
from vitlab.data.evaluation import evaluation_batches
from vitlab.errors import CheckpointError, ConfigError, DataError, VitlabError, format_error
from vitlab.invocation import format_command
from vitlab.machine import find_fastest_device, read_energy
from vitlab.models import VisionTransformer
from vitlab.monitors import better
from vitlab.programs.compare import (
    find_chosen_key,
    group_by_settings,
    group_sweep_jobs,
    list_settings,
    notes_on,
    read_chosen,
)
from vitlab.reports.comparison import Pair, Recipe, choose_metric, compare
from vitlab.reports.comparison_tables import find_differing_settings, means
from vitlab.reports.finished import FinishedRun
from vitlab.reports.page import sections
from vitlab.reports.page.blocks import LARGEST, Charts, Commands, Section, Table, Text, render_page
from vitlab.reports.page.learning_curves import draw_learning_curves
from vitlab.reports.page.origins import (
    describe_costs,
    describe_origins,
    judge_regression,
    label_by_software,
    list_changes,
    list_commands,
    read_starts,
)
from vitlab.reports.page.pictures import encode_heat_map, encode_picture
from vitlab.reports.page.samples import (
    Sample,
    bin_predictions,
    find_confused_pairs,
    find_disagreements,
    read_class_names,
    read_samples,
)
from vitlab.reports.page.sections import PAIRS, Evidence, MapScores
from vitlab.run.inference.saved_classifier import open_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.storage.output import RUNS, check_ending, output_file
from vitlab.tasks.supervised import Supervised
from vitlab.views import pick, relevance, why_no_relevance
from vitlab.views.faithfulness import measure_faithfulness
from vitlab.views.look import look

MOST_IMAGES, MOST_RUNS = 24, 40  # in a gallery; in a table of runs
SHOWN_MAPS = 6  # images with heat maps
BATCH = 64
T = TypeVar("T")


def report(cfg: DictConfig) -> Path:
    """Write the page and return its file. Raises VitlabError for runs that cannot be reported."""
    if cfg.num_images > MOST_IMAGES:
        raise ConfigError(f"num_images={cfg.num_images} makes a page too large to send; set at most {MOST_IMAGES}")
    question = read_question(cfg)
    home = question.runs[0].folder / "report" if len(question.runs) == 1 else RUNS / "report"
    place = output_file(cfg.output, "report", home, "report.html", overwrite=cfg.overwrite)
    check_ending(place.path, [".html"])
    run = question.choose_run()
    samples = read_samples(run.folder)
    worst = sorted(samples, key=lambda one: -one.loss)[: cfg.num_images]
    split = find_split_votes(question, samples)[: cfg.num_images]
    shown = {one.index for one in list_pictured(samples, cfg.num_images)} | {one.index for one in worst}
    found = look_at_model(cfg, run, samples, sorted(shown | {one.index for one, _ in split}))
    page = [
        tell_results(question),
        tell_changes(question),
        Section("curves", "How training went", draw_charts(question)),
        tell_settings(question),
        *(tell_model(cfg, run, samples, worst, split, found) if samples else []),
        *tell_origins(question, found),
        Section("missing", "What is not shown, and why", [Text(line) for line in found.missing]),
    ]
    made = f"vitlab {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    looked = f"; images and heat maps are of {run.folder}" if samples else ""
    content = render_page(f"Report: {question.title}", f"{made}{looked}", page)
    if len(content) > LARGEST:
        raise ConfigError(f"the page would have {len(content) / 1e6:.1f} MB, more than 5; set a lower num_images=")
    file = place.make()
    write_whole(file, content)
    for line in (*question.answers[:1], *found.missing, f"report in {file}, {len(content) / 1e6:.1f} MB"):
        print(line)
    return file


# -- what was asked


@dataclass(frozen=True)
class Question:
    """The recipes, best first, what is compared, and what was found. In a regression the recipes are one, run with
    other software, the earlier first."""

    title: str
    recipes: list[Recipe]
    metric: str
    pairs: list[Pair]
    notes: list[str]
    is_regression: bool = False
    settings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> list[FinishedRun]:
        return [run for recipe in self.recipes for run in recipe.runs.values()]

    @property
    def answers(self) -> list[str]:
        return sections.name_answers(self.pairs) or [sections.answer_alone(self.recipes[0], self.metric)]

    def choose_run(self) -> FinishedRun:
        """Choose the run whose model is looked at: of the best recipe, or the later one, that of the lowest seed, so
        that no seed is chosen for its score."""
        recipe = self.recipes[-1 if self.is_regression else 0]
        return recipe.runs[min(recipe.runs)]


def read_question(cfg: DictConfig) -> Question:
    """Read the runs and compare them. Raises VitlabError for runs that are missing, unfinished or not comparable."""
    chosen = find_chosen_key(cfg, "report")
    notes: list[str] = []
    if chosen == "runs":
        runs = [read_chosen(run_folder(str(run))) for run in cfg.runs]
        recipes, is_regression = split_by_software(runs)
        title = ", ".join(recipe.label for recipe in recipes[:3]) + (" and others" if len(recipes) > 3 else "")
        title = f"{runs[0].settings['name']}, {title}" if is_regression else title
    else:
        recipes, notes = group_sweep_jobs(str(cfg.sweep or cfg.study), cfg.by)
        title, is_regression = str(cfg.sweep or cfg.study), False
    if not recipes:
        raise ConfigError(f"{chosen}= names no run that is done; name at least one")
    metric, told = (cfg.metric, []) if cfg.metric else choose_metric(recipes)
    metric = metric if "/" in metric else f"test/{metric}"
    common = set.intersection(*(set(run.metrics) for recipe in recipes for run in recipe.runs.values()))
    if cfg.metric is None and metric not in common and common:
        monitored = str(next(iter(recipes[0].runs.values())).settings["monitor"])
        metric = monitored if monitored in common else min(common)
    pairs = compare(recipes, metric)
    if not is_regression:
        sign = 1 if better(metric) == "min" else -1
        recipes = sorted(recipes, key=lambda one: sign * sum(one.values(metric)) / len(one.runs))
    notes += [*told, *dict.fromkeys(note for pair in pairs for note in notes_on(pair))]
    notes += [
        f"{run.folder} was not tested on every sample."
        for recipe in recipes
        for run in recipe.runs.values()
        if run.partial
    ]
    for recipe in recipes if not is_regression else ():
        if labels := dict.fromkeys(label_by_software(list(recipe.runs.values())).values()):
            notes.append(f"The runs of {recipe.label} are of different software: {'; '.join(labels)}.")
    settings = [row for row in find_differing_settings(recipes) if not is_machine_key(row["key"])]
    return Question(title, recipes, metric, pairs, notes, is_regression, settings)


def split_by_software(runs: Sequence[FinishedRun]) -> tuple[list[Recipe], bool]:
    """Sort runs by recipe. Where all have one, and some of them a seed in common and other software, sort them by the
    software, the earlier first, and return True. Raises ConfigError for a run that is named twice."""
    one_recipe = len({list_settings(run) for run in runs}) == 1
    repeated = len({run.seed for run in runs}) < len(runs)
    labels = label_by_software(runs) if one_recipe and repeated else {}
    if len({run.folder for run in runs}) < len(runs) or not labels:
        return group_by_settings(runs), False
    ordered = sorted(runs, key=lambda run: str((read_starts(run.folder) or [{}])[0].get("time")))
    names = dict.fromkeys(labels[run.folder] for run in ordered)
    groups = {name: [run for run in ordered if labels[run.folder] == name] for name in names}
    return [replace(group_by_settings(group)[0], label=name) for name, group in groups.items()], True


# -- what the model shows


def look_at_model(cfg: DictConfig, run: FinishedRun, samples: Sequence[Sample], shown: Sequence[int]) -> Evidence:
    """Read the pictures of samples, and run the saved weights: predictions, heat maps, cost. What the run no longer
    has, or its task does not give, is named."""
    missing: list[str] = []
    if not samples:
        return Evidence(missing=["Test samples are not shown: the run names no single class for each of them."])

    @contextmanager
    def note(what: str) -> Iterator[None]:
        try:
            yield
        except (VitlabError, OSError, AttributeError, RuntimeError) as error:
            missing.append(f"{what}: {format_error(error)}")

    found, datamodule = Evidence(), None
    with note("The images and the model cannot be read"):
        saved = SavedRun.open(str(run.folder))
        datamodule = open_tested_images(saved, samples)
        split = datamodule.get_evaluation_split("test")
        pixels = {one.index: one.image.numpy() for one in read_all(split, shown, "reading images")}
        found = replace(found, pictures={index: encode_picture(image) for index, image in pixels.items()})
    if datamodule is not None:
        with note("Nothing is predicted again, and no heat map is shown"):
            task = saved.task().to(find_fastest_device()).eval()
            if not isinstance(task, Supervised):
                raise ConfigError(f"{type(task).__name__} is no classifier")
            found = score_samples(cfg, task, datamodule, samples, found)
            with note("Where the model looks is not shown"):
                found = draw_heat_maps(cfg, task, datamodule, samples, found)
    return replace(found, missing=missing)


def open_tested_images(saved: SavedRun, samples: Sequence[Sample]) -> Any:
    """Open the images of the run. Raises CheckpointError if its test images are others by now."""
    datamodule = open_images(saved)
    split = datamodule.get_evaluation_split("test")
    if len(split) <= max(one.index for one in samples) or any(split.name(one.index) != one.name for one in samples):
        raise CheckpointError("the test images are not those that the run was tested on")
    return datamodule


def read_all(split: Any, places: Sequence[int], what: str) -> Iterator[ReadSample]:
    """Read the images of a split at these places that can be read, with a progress bar."""
    read = (split[(0, place)] for place in show_progress(places, what))
    return (one for one in read if isinstance(one, ReadSample))


def show_progress(things: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    return track(things, description=what, total=total, transient=True, disable=not sys.stdout.isatty())


def score_samples(
    cfg: DictConfig, task: Supervised, datamodule: Any, samples: Sequence[Sample], found: Evidence
) -> Evidence:
    """Predict test samples again, evenly spaced, with and without the temperature, and measure what that costs."""
    known, names = {one.index: one for one in samples}, datamodule.class_names
    places = [samples[place].index for place in pick(len(samples), cfg.num_scored)]
    device = next(task.parameters()).device
    batches = evaluation_batches(datamodule, "test", batch_size=BATCH, device=device, places=places)
    before, right, agreed, after = [], [], 0, []
    began, energy = time.perf_counter(), read_energy()
    for batch in show_progress(batches, "predicting", -(-len(places) // BATCH)):
        with torch.inference_mode():
            logits = task(*batch.view.arguments()).float()
            calibrated = task.probabilities(logits).max(dim=1)
        before += logits.softmax(dim=1).max(dim=1).values.tolist()
        after += calibrated.values.tolist()
        for index, k in zip(batch.index.tolist(), calibrated.indices.tolist(), strict=True):
            agreed += names[k] == known[index].predicted
            right.append(names[k] == known[index].true)
    seconds, used = time.perf_counter() - began, read_energy()
    if not right:
        raise DataError("none of the test images can be read")
    sizes = total(costs(task.model, tuple(batch.view.inputs.shape[1:])))
    row = {
        "parameters": f"{sizes.parameters:,}",
        "multiply-accumulates an image": f"{sizes.weights + sizes.attention:,}",
        "images/s, predicted here with reading": f"{len(right) / seconds:,.0f}",
        "energy an image": "this machine does not tell",
    }
    if energy is not None and used is not None and used > energy:
        row["energy an image"] = f"{(used - energy) / len(right):.3g} J, of the whole machine"
    return replace(
        found,
        before=bin_predictions(before, right),
        after=bin_predictions(after, right),
        scored=len(right),
        agreed=agreed,
        costs=[row],
    )


def draw_heat_maps(
    cfg: DictConfig, task: Supervised, datamodule: Any, samples: Sequence[Sample], found: Evidence
) -> Evidence:
    """Draw relevance and rollout of some right and some of the worst samples, and measure on others, evenly spaced, how
    faithful they are, beside a random order. Raises ConfigError for a model without them."""
    model, split = task.model, datamodule.get_evaluation_split("test")
    if not isinstance(model, VisionTransformer):
        raise ConfigError(f"{type(model).__name__} is not a Vision Transformer")
    device, grid = next(task.parameters()).device, model.patch_embed.grid
    worst = sorted(samples, key=lambda one: -one.loss)[: SHOWN_MAPS // 2]
    right = [one for one in samples if one.is_right]
    drawn = [*(right[place] for place in pick(len(right), SHOWN_MAPS - len(worst))), *worst]
    measured = [samples[place] for place in pick(len(samples), cfg.num_explained)]
    maps = {}
    scores: dict[str, list[Any]] = {}
    random = torch.Generator().manual_seed(0)
    indices = [one.index for one in (*drawn, *measured)]
    for place, read in enumerate(read_all(split, indices, "explaining")):
        image = datamodule.preprocessing.to(device).normalize(read.image[None].to(device))
        with torch.inference_mode():
            k = int(task(image).argmax(dim=1))

        def predict(images: Tensor, k: int = k) -> Tensor:
            with torch.inference_mode():
                return task.probabilities(task(images).float())[:, k]

        heats = compute_heat_maps(model, image, k)
        if not heats:
            raise ConfigError("its layers drop or merge tokens, so that a patch has no place in all of them")
        if place < len(drawn):
            pixels, index = read.image.numpy(), read.index
            overlays = {kind: encode_heat_map(pixels, heat.reshape(grid).numpy()) for kind, heat in heats.items()}
            maps[index] = {"image": encode_picture(pixels), **overlays}
            continue
        for kind, heat in (heats | {"random": torch.rand(len(heats["rollout"]), generator=random)}).items():
            scores.setdefault(kind, []).append(measure_faithfulness(predict, image, heat, grid))
    faithfulness = {
        kind: MapScores(
            torch.stack([one.deletion for one in own]).mean(dim=0).tolist(),
            torch.stack([one.insertion for one in own]).mean(dim=0).tolist(),
            [one.deletion_score for one in own],
            [one.insertion_score for one in own],
        )
        for kind, own in scores.items()
    }
    return replace(found, maps=maps, faithfulness=faithfulness)


def compute_heat_maps(model: VisionTransformer, image: Tensor, k: int) -> dict[str, Tensor]:
    """Compute the maps (N,) of an image (1, C, H, W) for class k that this model has."""
    seen = look(model, image)
    if seen is None:
        return {}
    found = {"relevance": relevance(model, image, k).float().cpu()} if why_no_relevance(model) is None else {}
    return {**found, "rollout": seen.rollout[-1]}


# -- what the page says


def tell_results(question: Question) -> Section:
    asked = sections.ask(
        question.recipes, question.metric, [row["key"] for row in question.settings], question.is_regression
    )
    return sections.tell_results(asked, question.answers, question.notes, means(question.recipes), question.metric)


def tell_changes(question: Question) -> Section:
    """Show what a regression changed; nothing for other reports."""
    if not question.is_regression:
        return Section("changes", "What has changed")
    blocks: list[Any] = []
    for pair in question.pairs:
        seed = min(pair.first.runs.keys() & pair.second.runs.keys(), default=None)
        both = [one.runs[min(one.runs) if seed is None else seed] for one in (pair.first, pair.second)]
        blocks.append(Text(judge_regression(pair, *(read_samples(run.folder) for run in both)), "lead"))
        blocks.append(Table("Whatever differs between the two", list_changes(pair.first, pair.second)))
    return Section("changes", "What has changed", blocks)


def draw_charts(question: Question) -> list[Any]:
    found = draw_learning_curves(question.recipes)
    return [Charts(found)] if found else []


def tell_settings(question: Question) -> Section:
    """Show the settings that differ; those that a user has set come first."""
    title = "Settings that differ"
    if not question.settings:
        return Section("settings", title)
    caption = "Only settings with different values, without names and seeds; first those that were set"
    return Section("settings", title, [Table(caption, question.settings[:MOST_RUNS])])


def tell_model(
    cfg: DictConfig,
    run: FinishedRun,
    samples: Sequence[Sample],
    worst: Sequence[Sample],
    split: Sequence[tuple[Sample, str]],
    found: Evidence,
) -> list[Section]:
    """Show what one model says of the test samples."""
    return [
        sections.tell_confusions(samples, read_class_names(run.folder, samples), found, cfg.num_images),
        sections.tell_reliability(run, samples, found),
        sections.tell_none_of_these(run, samples, found, cfg.num_images),
        sections.tell_worst(worst, split, found),
        sections.tell_heat_maps({one.index: one for one in samples}, found),
    ]


def tell_origins(question: Question, found: Evidence) -> list[Section]:
    """Show cost, provenance and commands of at most `MOST_RUNS` runs."""
    runs = question.runs[:MOST_RUNS]
    left = f"; the first {MOST_RUNS} of {len(question.runs)}" * (len(question.runs) > MOST_RUNS)
    cost: list[Any] = [Table(f"Training{left}", describe_costs(runs))]
    cost += [Table("One prediction of the model that is looked at", found.costs)] if found.costs else []
    commands = [*list_commands(runs), ("this report", [describe_call()])]
    return [
        Section("cost", "Cost", cost),
        Section("origins", "Where the runs come from", [Table(f"Software and machine{left}", describe_origins(runs))]),
        Section("commands", "Commands", [Commands(commands)]),
    ]


def list_pictured(samples: Sequence[Sample], most: int) -> Iterator[Sample]:
    """Yield the samples of confused pairs, and those of the highest novelty."""
    for _, _, own in find_confused_pairs(samples, PAIRS):
        yield from own[:most]
    yield from sorted((one for one in samples if one.novelty is not None), key=lambda one: -(one.novelty or 0))[:most]


def find_split_votes(question: Question, samples: Sequence[Sample]) -> list[tuple[Sample, str]]:
    """Find the samples on which the models of all runs disagree most, and say how they vote."""
    known = {(one.index, one.name): one for one in samples}
    every = [read_samples(run.folder) for run in question.runs[:MOST_RUNS]]
    same = [own for own in every if known.keys() == {(one.index, one.name) for one in own}]
    by_index = {one.index: one for one in samples}
    told = find_disagreements(same)
    return [(by_index[index], ", ".join(f"{n} × {name}" for name, n in votes.most_common())) for index, votes in told]


def describe_call() -> str:
    """Write the command of this report."""
    return " ".join([format_command("report"), *map(shlex.quote, Job.current().overrides)])
