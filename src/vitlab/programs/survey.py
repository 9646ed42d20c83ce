"""Survey a data set: read every image once, print what was found, write it as tables, and draw it."""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from vitlab.atomic_files import write_csv
from vitlab.callbacks.figures import LABELLED_CLASSES, write_figure
from vitlab.config.job import Job
from vitlab.config.nodes import merge_node
from vitlab.data.batches.batch import Sample
from vitlab.data.duplicates import (
    UNKNOWN,
    Findings,
    Overlap,
    Place,
    examine_images,
    find_shared,
    group_equal,
    join_findings,
)
from vitlab.data.glance import GRAY
from vitlab.data.images.decoding import MODES
from vitlab.data.images.moments import mean_and_std
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.loading.loader import choose_num_workers
from vitlab.data.loading.parallel import cut, map_in_order
from vitlab.data.order.sampler import Key
from vitlab.data.targets import Classes
from vitlab.errors import ConfigError
from vitlab.run.building.autoconfig import find_values
from vitlab.run.checks.preconditions import check_images
from vitlab.run.printing.console import write_json
from vitlab.run.printing.hints import name_images
from vitlab.run.storage.output import RUNS, output_folder
from vitlab.spelling import format_count
from vitlab.views import channels_last

AT_ONCE = 64  # images that a worker reads for one answer
MOST_LINES = 10  # lines of a list
POINTS = 20_000  # points drawn in a scatter plot
ADVICE = "repair or remove them, or train with data.loading.on_bad_image=skip"
WIDTH = 120  # columns of a table that goes to a file


def survey(cfg: DictConfig) -> dict[str, Any]:
    """Print the report and write it to cfg.output; returns it as plain types."""
    home = RUNS / "survey" / Job.current().choices["data"]
    place = output_folder(cfg.output, "survey", home, overwrite=cfg.overwrite)
    check_images(cfg.data)
    options = find_values(merge_node(cfg, {"data": {"loading": {"on_bad_image": "skip"}}}))  # it lists them
    datamodule: Any = options.datamodule
    splits = {name: datamodule.get_evaluation_split(name) for name in datamodule.splits}
    classes = counts(splits, datamodule.class_names)
    workers = choose_num_workers(datamodule.loading.num_workers, processes=1)
    found = {name: survey_split(name, split, workers, cfg.seconds) for name, split in splits.items()}
    groups = group_equal({name: f.digests for name, f in found.items()})
    mean, std = mean_and_std(found["train"].moments)
    gray = {mode for f in found.values() for mode in f.modes} <= GRAY | {"?"}
    channels = 1 if gray else datamodule.in_chans  # gray images as RGB have the same values in each
    report: dict[str, Any] = {
        "images": {name: len(split) for name, split in splits.items()},
        "classes": classes,
        "sizes": dict(
            Counter(f"{w}x{h}" for f in found.values() for h, w in f.sizes.tolist() if h).most_common(MOST_LINES)
        ),
        "modes": dict(Counter(mode for f in found.values() for mode in f.modes if mode != "?").most_common()),
        "unreadable": {name: len(f.unreadable) for name, f in found.items()},
        "identical": {"groups": len(groups), "images": sum(map(len, groups))},
        "overlap": {f"{later} in {first}": n for (first, later), n in Overlap(groups, 0).counts().items()},
        "in_chans": channels,
        "mean": [round(value, 4) for value in mean[:channels]],
        "std": [round(value, 4) for value in std[:channels]],
    }
    output = place.make()
    write_json(output / "survey.json", report)
    write_tables(output, splits, found, groups, classes)
    write_figure(draw_survey(splits, found, classes), output / "survey.png")
    tell(report, splits, found, groups, output)
    tell_options(report, stated=None if "in_chans" in options.values else datamodule.in_chans)
    return report


def survey_split(name: str, split: ImageSplit, num_workers: int, seconds: float | None = None) -> Findings:
    """Examine every image of a split, or, once `seconds` are over, those of pieces from all over it: the others are
    images of which nothing is known."""
    pieces = cut(len(split), AT_ONCE)
    if seconds is not None:
        pieces = [pieces[k] for k in np.random.RandomState(0).permutation(len(pieces))]
    work, end = (
        partial(examine_images, split, split.crop),
        time.monotonic() + (math.inf if seconds is None else seconds),
    )
    found = {}
    results = map_in_order(work, pieces, done=0, title=f"reading {name}", unit="images", num_workers=num_workers)
    for piece, findings in zip(pieces, results, strict=False):
        found[piece.start] = findings
        if time.monotonic() > end:
            print(f"read {sum(len(one.sizes) for one in found.values()):,} of {len(split):,} images of {name} in time")
            break
    unread = {p.start: know_nothing(len(p), split.in_chans) for p in pieces if p.start not in found}
    return join_findings([one for _, one in sorted((found | unread).items())])


def know_nothing(count: int, channels: int) -> Findings:
    """Return the findings of images that nobody has looked at."""
    return Findings(
        np.full(count, UNKNOWN), np.zeros((count, 2), np.int64), ["?"] * count, {}, np.zeros((3, channels), np.int64)
    )


def require_classes(split: ImageSplit) -> Classes:
    """Raise ConfigError for images without classes."""
    if not isinstance(split.targets, Classes):
        raise ConfigError(f"survey needs images with classes, but this data has images {split.targets.kind}")
    return split.targets


def counts(splits: dict[str, ImageSplit], class_names: list[str]) -> dict[str, list[int]]:
    """Count the images of each class in each split."""
    columns = [require_classes(split).counts(len(class_names)) for split in splits.values()]
    numbers = np.stack(columns, axis=1)
    return dict(zip(class_names, numbers.tolist(), strict=True))


# -- told


def tell(
    report: dict[str, Any],
    splits: dict[str, ImageSplit],
    found: dict[str, Findings],
    groups: list[list[Place]],
    output: Path,
) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    tables = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    tables.print(class_table(report["classes"], list(splits)))
    sizes = np.concatenate([f.sizes[f.sizes[:, 0] > 0] for f in found.values()])
    smallest, median, largest = (np.percentile(sizes, q, axis=0).astype(int) for q in (0, 50, 100))
    bad = sum(report["unreadable"].values())
    names = list(report["classes"])
    rows = {
        "images": ", ".join(f"{name} {count:,}" for name, count in report["images"].items()),
        "sizes": format_counts(report["sizes"], len(sizes)),
        "": f"height {smallest[0]} to {largest[0]}, median {median[0]}; "
        f"width {smallest[1]} to {largest[1]}, median {median[1]}",
        "modes": format_counts(report["modes"], len(sizes)),
        "unreadable": f"{bad:,} images, in {output / 'unreadable.csv'}; {ADVICE}" if bad else "none",
    }
    for name, row in rows.items():
        console.print(f"{name:<12}{row}")
    damaged = ((name, place, reason) for name, f in found.items() for place, reason in f.unreadable.items())
    tell_some(console, [f"{name}: {splits[name].name(place)}: {reason}" for name, place, reason in damaged])
    if not groups:
        console.print(f"{'identical':<12}no two images")
    for title, some in (
        ("between", find_shared(groups)),
        ("within", [g for g in groups if len({s for s, _ in g}) == 1]),
    ):
        if some:
            odd = sum(len({splits[s].words(i, names) for s, i in group}) > 1 for group in some)
            labels = f", {odd:,} of them with different labels" if odd else ""
            what = f"{format_count(len(some), 'group')} of images {title} splits{labels}, in {output / 'identical.csv'}"
            console.print(f"{'identical':<12}{what}")
            tell_some(console, [name_images(group, splits) for group in some])
    for pair, count in report["overlap"].items():
        console.print(f"{'overlap':<12}{count:,} images of {pair}", style="bold yellow")
    console.print(f"{'picture':<12}{output / 'survey.png'}")


def tell_options(report: dict[str, Any], stated: int | None) -> None:
    """Say how to normalise, and, unless the config has `stated` the same, how many channels there are."""
    words = [f"data.{key}={format_list(report[key])}" for key in ("mean", "std")]
    if report["in_chans"] != stated:
        channels = report["in_chans"]
        words = [f"data.in_chans={channels}", f"data.images.mode={MODES.get(channels, 'null')}", *words]
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'normalise':<12}{' '.join(map(repr, words))}")


def tell_some(console: Console, lines: Sequence[str]) -> None:
    for line in lines[:MOST_LINES]:
        console.print(f"{'':<12}{line}")
    if len(lines) > MOST_LINES:
        console.print(f"{'':<12}and {len(lines) - MOST_LINES:,} more")


def format_counts(counted: dict[str, int], total: int) -> str:
    """List things with their counts, and count those that are not listed."""
    rest = total - sum(counted.values())
    return ", ".join(f"{name} {count:,}" for name, count in counted.items()) + (f", others {rest:,}" if rest else "")


def format_list(values: list[float]) -> str:
    """Write a list as Hydra reads it back."""
    return "[" + ",".join(f"{value:.4f}" for value in values) + "]"


def class_table(classes: dict[str, list[int]], splits: list[str]) -> Table:
    """Tabulate images by class and split; of many classes, the smallest and the largest."""
    table = Table("class", title=f"images of {len(classes):,} classes", title_justify="left")
    for split in splits:
        table.add_column(split, justify="right")
    ranked = sorted(classes.items(), key=lambda item: item[1][0])
    few = len(classes) <= LABELLED_CLASSES
    for name, numbers in classes.items() if few else [*ranked[:5], ("...", None), *ranked[-5:]]:
        table.add_row(name, *(f"{number:,}" for number in numbers) if numbers else ())
    return table


# -- kept


def write_tables(
    folder: Path,
    splits: dict[str, ImageSplit],
    found: dict[str, Findings],
    groups: list[list[Place]],
    classes: dict[str, list[int]],
) -> None:
    """Write classes.csv, unreadable.csv and identical.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(classes)
    write_csv(folder / "classes.csv", ["class", *splits], ([name, *numbers] for name, numbers in classes.items()))
    write_csv(
        folder / "unreadable.csv",
        ["split", "image", "reason"],
        ([s, splits[s].name(place), reason] for s, f in found.items() for place, reason in f.unreadable.items()),
    )
    write_csv(
        folder / "identical.csv",
        ["group", "split", "image", "class"],
        ([k, s, splits[s].name(i), splits[s].words(i, names)] for k, group in enumerate(groups) for s, i in group),
    )


# -- drawn


def draw_survey(splits: dict[str, ImageSplit], found: dict[str, Findings], classes: dict[str, list[int]]) -> Figure:
    """Draw class counts, sizes, and an image of each of up to 30 classes as it is evaluated."""
    samples = list(choose_samples(splits["train"], found["train"], len(classes)))
    columns = min(10, len(samples))
    lines = -(-len(samples) // columns)
    figure = Figure(figsize=(13, 4.2 + 1.6 * lines), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[4.2, 1.6 * lines])
    above, below = halves
    bars, scatter = above.subplots(1, 2)
    draw_counts(bars, classes, list(splits))
    draw_sizes(scatter, found)
    names = list(classes)
    for place, (target, image) in enumerate(samples, start=1):
        axes = below.add_subplot(lines, columns, place)
        axes.imshow(channels_last(image).numpy())
        axes.set_title(names[target], fontsize=7)
        axes.set_axis_off()
    return figure


def choose_samples(split: ImageSplit, found: Findings, num_classes: int) -> Iterable[tuple[int, Any]]:
    """Give (class, image (C, H, W) in [0, 1]): the first readable image of up to 30 classes, evenly spaced."""
    readable = np.ones(len(split), dtype=bool)
    readable[list(found.unreadable)] = False
    places = np.flatnonzero(readable)
    classes, firsts = require_classes(split)[places].find_first_places()
    for k in np.linspace(0, len(classes) - 1, min(LABELLED_CLASSES, len(classes))).round().astype(int):
        sample = split[Key(0, int(places[firsts[k]]))]
        if isinstance(sample, Sample):
            yield int(classes[k]), sample.image / 255


def draw_counts(axes: Any, classes: dict[str, list[int]], splits: list[str]) -> None:
    numbers = np.array(list(classes.values()))  # (K, number of splits)
    places, base = np.arange(len(classes)), np.zeros(len(classes))
    for k, split in enumerate(splits):
        axes.bar(places, numbers[:, k], bottom=base, width=0.85 if len(classes) <= LABELLED_CLASSES else 1, label=split)
        base += numbers[:, k]
    if len(classes) <= LABELLED_CLASSES:
        axes.set_xticks(places, list(classes), rotation=45, ha="right", fontsize=8)
    axes.set(title="images of each class", ylabel="images", xlabel="class", ylim=(0, 1.15 * base.max()))
    axes.legend(fontsize=8, ncols=len(splits), loc="upper center")


def draw_sizes(axes: Any, found: dict[str, Findings]) -> None:
    sizes = np.concatenate([f.sizes[f.sizes[:, 0] > 0] for f in found.values()])
    shapes, times = np.unique(sizes[:: -(-len(sizes) // POINTS)], axis=0, return_counts=True)
    axes.scatter(shapes[:, 1], shapes[:, 0], s=8 + 200 * times / times.sum(), alpha=0.5, edgecolors="none")
    axes.set(title="sizes", xlabel="width, pixels", ylabel="height, pixels", aspect="equal")
    axes.margins(0.15)
