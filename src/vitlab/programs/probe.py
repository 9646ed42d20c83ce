"""Probe how well a frozen model's features tell the classes apart: fitted on train, chosen on val, scored on test.

n images, L settings, R draws of the known images
"""

from collections.abc import Iterator
from math import hypot
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vitlab.config.job import Job
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError
from vitlab.features import Features, choose_shots, nearest_neighbours, ridge
from vitlab.reports.intervals import half_width, wilson_interval
from vitlab.run.inference.frozen_model import FrozenModel
from vitlab.run.printing import console
from vitlab.run.storage.output import RUNS, output_file
from vitlab.seeding import make_seed


def probe(cfg: DictConfig) -> dict[str, Any]:
    """Print the accuracies of nearest neighbours and few-shot regression, and write them to a JSON; returns its
    content. Raises ConfigError for settings out of range and for images of several classes each."""
    check_probe(cfg)
    frozen = FrozenModel.open(cfg, few_labels=True)
    datamodule = frozen.datamodule
    if not isinstance(datamodule.targets, OneClass):
        raise ConfigError(f"probe needs images with one class each, but this data has images {datamodule.targets.kind}")
    neighbours(cfg, len(datamodule.splits["train"]))
    home = RUNS / "probe" / f"{Job.current().choices['model']}_{frozen.images}"
    if frozen.folder is not None:
        home = frozen.folder / "probe"
    place = output_file(cfg.output, "probe", home, "probe.json", overwrite=cfg.overwrite)
    features = {split: frozen.features(split, cfg) for split in SPLITS}
    found = list(probes(features, len(datamodule.class_names), cfg, frozen.device))
    skipped = {split: len(datamodule.splits[split]) - len(features[split].values) for split in SPLITS}
    content: dict[str, Any] = {
        **frozen.facts,
        "seed": cfg.seed,
        "draws": cfg.draws,
        "features": features["train"].values.shape[1],
        "images_used": {split: len(some.values) for split, some in features.items()},
        "skipped": skipped,
        "probes": found,
    }
    output = place.make()
    console.write_json(output, content)
    tell(content, output)
    return content


def check_probe(cfg: DictConfig) -> None:
    if not cfg.k and not cfg.shots:
        raise ConfigError("k and shots are both empty; give at least one of them")
    if not cfg.l2_exponents:
        raise ConfigError("l2_exponents [] is not one or more numbers from -100 to 100")


def neighbours(cfg: DictConfig, n: int) -> list[int]:
    """Choose the numbers of neighbours in cfg.k that n training images have. Raises ConfigError if there are none of
    them."""
    k = [value for value in cfg.k if value <= n]
    if cfg.k and not k:
        raise ConfigError(f"k {list(cfg.k)} are more neighbours than the {n} training images")
    return k


def probes(
    features: dict[str, Features], num_classes: int, cfg: DictConfig, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Give what each probe chose on val, and how it did on val and test."""
    train, asked = features["train"], {split: features[split] for split in ("val", "test")}
    if cfg.k:
        k = neighbours(cfg, len(train.values))
        known, target = train.values.to(device), train.target.to(device)
        options: dict[str, Any] = {"k": k, "num_classes": num_classes, "temperature": cfg.temperature}
        classes = {s: nearest_neighbours(known, target, f.values.to(device), **options) for s, f in asked.items()}
        yield {"probe": "k-NN", **choose_best("k", k, [classes], asked)}
    l2 = [2.0**exponent for exponent in cfg.l2_exponents]
    for shots in cfg.shots:
        draws = []
        for draw in range(cfg.draws):
            few = choose_shots(train.target, shots, make_seed("draw", cfg.seed, draw))
            regression = ridge(train.values[few], train.target[few], num_classes=num_classes, l2=l2)
            draws.append({split: regression.classes(some.values) for split, some in asked.items()})
        short = num_classes - int((train.target.bincount(minlength=num_classes) >= shots).sum())
        yield {
            "probe": f"{shots}-shot",
            **choose_best("l2_exponent", list(cfg.l2_exponents), draws, asked),
            "classes_with_fewer_images": short,
        }


def choose_best(
    name: str, settings: list[Any], draws: list[dict[str, Tensor]], asked: dict[str, Features]
) -> dict[str, Any]:
    """Find the setting that is best on val (the first among equals), and how it does on average over the draws and in
    each. The predicted classes of a split are (L, n)."""
    right = {split: [(said[split].cpu() == f.target).sum(dim=1) for said in draws] for split, f in asked.items()}
    chosen = int(torch.stack(right["val"]).sum(dim=0).argmax())
    found: dict[str, Any] = {"chosen": {name: settings[chosen]}}
    for split, counts in right.items():
        n = len(asked[split].values)
        each = [int(count[chosen]) / n for count in counts]
        found[f"{split}/acc1"] = mean(each)
        found[f"{split}/interval"] = interval(each, n)
        found[f"{split}/each"] = each
    return found


def interval(each: list[float], n: int) -> tuple[float, float]:
    """Give the interval of the mean of accuracies on the same n images; both the draws and the images are chance."""
    middle, half, (low, high) = mean(each), half_width(each), wilson_interval(mean(each) * n, n)
    return max(0.0, middle - hypot(half, middle - low)), min(1.0, middle + hypot(half, high - middle))


def tell(content: dict[str, Any], output: Path) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    table = Table("probe", "chosen on val", "val/acc1", "test/acc1", "95% interval")
    for row in content["probes"]:
        chosen = ", ".join(f"{name} {value:g}" for name, value in row["chosen"].items())
        low, high = row["test/interval"]
        table.add_row(
            row["probe"], chosen, f"{row['val/acc1']:.2%}", f"{row['test/acc1']:.2%}", f"{low:.2%} to {high:.2%}"
        )
    console.print(table)
    facts = {"images": ", ".join(f"{split} {count:,}" for split, count in content["images_used"].items())}
    facts["features"] = str(content["features"])
    if skipped := {split: count for split, count in content["skipped"].items() if count}:
        facts["skipped"] = ", ".join(f"{count} unreadable images in {split}" for split, count in skipped.items())
    if short := [row for row in content["probes"] if row.get("classes_with_fewer_images")]:
        facts["fewer"] = ", ".join(
            f"{row['classes_with_fewer_images']} classes have not enough images for {row['probe']}" for row in short
        )
    for name, line in {**facts, "saved": str(output)}.items():
        console.print(f"{name:<10} {line}")
