"""Build the teacher of a config: a model with its weights, and how it wants images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch.nn import Module

from vitlab.checkpoints import file
from vitlab.config.nodes import resolve_config
from vitlab.config.stored_config import parse_saved_config
from vitlab.errors import ConfigError
from vitlab.run.building.model import build_model, load_pretrained, try_out
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks.teacher import Norm, Teacher


@dataclass(frozen=True)
class TeacherInput:
    """What the origin of weights says of the images they were trained on; None where it says nothing."""

    norm: Norm | None = None
    image_size: int | None = None
    class_names: list[str] | None = None


def build_teacher(cfg: DictConfig) -> Teacher:
    """Build the teacher that cfg.teacher names, for images as cfg.data gives them.

    A node without a model is the model of the run teacher.pretrained. The teacher wants images of the mean, std and
    size that its run, or timm, states; what the node states comes first. Where nobody states a size it is the
    student's. Raises ConfigError or CheckpointError for a teacher that cannot teach, or whose mean and std nobody
    states.
    """
    node, data = cfg.teacher, resolve_config(cfg)["data"]
    if node.get("pretrained") is None:
        raise ConfigError(
            "teacher.pretrained is null; give the weights of the teacher: a run, or model@teacher=timm "
            "teacher.name=NAME teacher.pretrained=timm:NAME"
        )
    if "_target_" in node:
        model = build_model(node, "teacher")
        report = load_pretrained(model, node, "teacher")
        check_complete(report)
        stated = find_stated(report)
    else:
        model, stated = load_run_model(str(node.pretrained))
    given = Norm(data["mean"], data["std"])
    teacher = Teacher(
        model,
        given=given,
        wanted=choose_norm(node, stated),
        image_size=node.get("image_size") or stated.image_size or data["image_size"],
        class_names=stated.class_names,
    )
    blank = torch.zeros(1, data["in_chans"], teacher.image_size, teacher.image_size)
    try_out(teacher, blank, data["num_classes"], "the teacher")
    return teacher


def load_run_model(run: str) -> tuple[Module, TeacherInput]:
    """Load the model that a run trained."""
    saved = SavedRun.open(run)
    return saved.task().model, find_stated_by_run(resolve_config(saved.config), saved.checkpoint)


def choose_norm(node: DictConfig, stated: TeacherInput) -> Norm:
    own = resolve_config(node)
    if own.get("mean") is not None and own.get("std") is not None:
        return Norm(own["mean"], own["std"])
    if own.get("mean") is not None or own.get("std") is not None:
        raise ConfigError("teacher.mean and teacher.std must both be given")
    if stated.norm is None:
        raise ConfigError(
            f"teacher.pretrained={node.pretrained} does not state how its images were normalised; give "
            "+teacher.mean=[...] and +teacher.std=[...], of pixels from 0 to 1"
        )
    return stated.norm


def check_complete(report: Any) -> None:
    """Raise ConfigError for weights that leave a tensor of the teacher random."""
    anew = next((entry for entry in report.entries if entry.status == "initialised anew"), None)
    if anew is not None:
        raise ConfigError(
            f"teacher.pretrained: {report.origin} leaves {anew.tensor} random ({anew.note}); "
            "give weights of a model for the same classes"
        )


def find_stated(report: Any) -> TeacherInput:
    if report.form == "run":
        checkpoint = file.read(Path(report.origin))
        return find_stated_by_run(
            resolve_config(parse_saved_config(checkpoint["run"]["config"], report.origin)), checkpoint
        )
    kind, _, name = report.origin.partition(":")
    if kind == "timm":
        import timm  # already imported to load the weights

        config: Any = timm.get_pretrained_cfg(name)
        return TeacherInput(Norm(list(config.mean), list(config.std)), config.input_size[-1])
    return TeacherInput()


def find_stated_by_run(config: dict[str, Any], checkpoint: dict[str, Any]) -> TeacherInput:
    data = config["data"]
    return TeacherInput(Norm(data["mean"], data["std"]), data["image_size"], list(checkpoint["run"]["class_names"]))
