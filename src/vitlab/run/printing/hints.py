"""Tell at the start what a choice is known to cost, and whether test images are trained on; the run goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console

from vitlab.data import ImageDataModule
from vitlab.data.duplicates import Overlap, Place, overlap
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.targets import Classes
from vitlab.invocation import format_command
from vitlab.run.building.autoconfig import find_preprocessing
from vitlab.run.building.model import find_weights

FEW = 50_000  # images: with less, what a model does not know from the start it learns late
MOST_GROUPS = 3  # groups of equal images
PHOTOGRAPHS = 128  # pixels of a side, from which published weights suit images


@rank_zero_only
def print_hints(cfg: DictConfig, datamodule: ImageDataModule) -> None:
    """Print a line for each; `cfg` holds what was found."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    images = len(datamodule.splits["train"])
    for line in (*advise_class_names(datamodule.class_names), *advise_weights(cfg), *advise_few_images(cfg, images)):
        console.print(f"hint     {line}")


def advise_class_names(names: Sequence[str]) -> list[str]:
    """Tell which names of classes differ only in case or spaces."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.split()).casefold(), []).append(name)
    advice = "differ only in case or spaces; correct the labels if they are one class"
    return [f"the classes {' and '.join(map(repr, group))} {advice}" for group in alike.values() if len(group) > 1]


def advise_weights(cfg: DictConfig) -> list[str]:
    """Tell where images look otherwise than those that the weights were trained on."""
    known = {key: value for key, value in find_preprocessing(cfg).items() if key in ("mean", "std", "image_size")}
    if len(known.get("mean", ())) != cfg.data.in_chans:
        known = {key: value for key, value in known.items() if key == "image_size"}
    words = [
        f"'data.{key}={format_value(value)}'" for key, value in known.items() if not is_alike(cfg.data[key], value)
    ]
    return (
        [f"{find_weights(cfg.model)} was trained on images with other settings; to use the same, set {' '.join(words)}"]
        if words
        else []
    )


def advise_few_images(cfg: DictConfig, num_images: int) -> list[str]:
    """Tell what helps a Vision Transformer that starts from random weights."""
    model = cfg.model
    if model.get("pretrained") is not None or "initialization" not in model or num_images >= FEW:
        return []
    told = []
    if model.initialization == "normal" and str(model.position).startswith("learned_"):
        told.append(
            f"learned positions learn slowly with initialization=normal on {num_images:,} images: "
            "model.initialization=xavier gained 14 points on 1,258, see study=initialization"
        )
    if cfg.data.image_size >= PHOTOGRAPHS:
        known = model.get("published")
        told.append(
            f"{num_images:,} photographs are few for training from random weights; "
            + (f"model.pretrained=published loads {known}" if known else "model=vit_b16 has published weights")
        )
    return told


def is_alike(given: Any, known: Any) -> bool:
    if isinstance(known, int):
        same: bool = given == known
        return same
    return torch.allclose(torch.tensor(list(given)), torch.tensor(known), atol=1e-4)


def format_value(value: Any) -> str:
    return str(value).replace(" ", "")


@rank_zero_only
def print_overlap(splits: Mapping[str, ImageSplit]) -> None:
    """Print one line, and below it the first images that stand in two splits; nothing where images are composed anew in
    each epoch."""
    if any(split.pool.draws for split in splits.values()):
        return
    found = overlap(splits)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'overlap':<9}{sentence(found, surveyed=isinstance(splits['train'].targets, Classes))}")
    for group in found.groups[:MOST_GROUPS]:
        console.print(f"{'':<9}{name_images(group, splits)}", style="yellow")


def sentence(found: Overlap, surveyed: bool) -> str:
    """Say what was found, and what to do about it; `surveyed`: a survey takes such images."""
    if found.unchecked:
        looks = f"; {format_command('survey')} with the same data= checks this" if surveyed else ""
        return f"not checked: {found.unchecked}{looks}"
    if not found.groups:
        return f"none: no image of {found.num_images:,} is in two splits"
    parts = [f"{count:,} of {later} are in {earlier}" for (earlier, later), count in found.counts().items()]
    return f"WARNING: images are in two splits ({', '.join(parts)}), so scores are too good; the first of them:"


def name_images(group: list[Place], splits: Mapping[str, ImageSplit]) -> str:
    """Name the images of a group with their splits, four at most."""
    words = [f"{split}: {splits[split].name(place)}" for split, place in group[:4]]
    return " = ".join(words) + (f" = {len(group) - 4:,} more" if len(group) > 4 else "")
