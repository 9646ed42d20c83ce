"""The teacher of a config: a model with its weights, and how it wants images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch.nn import Module

from vitlab.checkpoints import file
from vitlab.errors import ConfigError, VitlabError
from vitlab.run.build import from_saved, plain
from vitlab.run.model import build_model, load_pretrained
from vitlab.tasks.teacher import Norm, Teacher


@dataclass(frozen=True)
class Stated:
    """What the origin of weights says of the images they were trained on; None where it says nothing."""

    norm: Norm | None = None
    image_size: int | None = None
    class_names: list[str] | None = None


def build_teacher(cfg: DictConfig) -> Teacher | None:
    """The teacher that cfg.teacher names, for images as cfg.data gives them; None for tasks without one.

    A node without a model is the model of the run teacher.pretrained. The teacher wants images of the mean, std and
    size that its run, or timm, states; a size in the node comes first, and the student's where nothing is stated.
    Raises ConfigError or CheckpointError for one that cannot teach.
    """
    if "teacher" not in cfg:
        return None
    node, data = cfg.teacher, plain(cfg)["data"]
    if node.get("pretrained") is None:
        raise ConfigError(
            "teacher.pretrained is null, and random weights teach nothing; give a run, or model@teacher=timm "
            "teacher.name=NAME teacher.pretrained=timm:NAME"
        )
    if "_target_" in node:
        model = build_model(node, "teacher")
        report = load_pretrained(model, node)
        check_complete(report)
        stated = stated_by(report)
    else:
        model, stated = model_of_run(str(node.pretrained))
    given = Norm(data["mean"], data["std"])
    teacher = Teacher(
        model,
        given=given,
        wanted=stated.norm or given,
        image_size=node.get("image_size") or stated.image_size or data["image_size"],
        class_names=stated.class_names,
    )
    try_out(teacher, data)
    return teacher


def model_of_run(run: str) -> tuple[Module, Stated]:
    """The model that a run trained, with its weights."""
    from vitlab.run.saved_run import SavedRun  # which rebuilds tasks, and so imports what imports this

    saved = SavedRun.open(run)
    return saved.task().model, stated_by_run(plain(saved.config), saved.checkpoint)


def check_complete(report: Any) -> None:
    """Raise ConfigError for weights that leave a tensor of the teacher random."""
    anew = next((entry for entry in report.entries if entry.status == "initialised anew"), None)
    if anew is not None:
        raise ConfigError(
            f"teacher.pretrained: {report.origin} leaves {anew.tensor} random ({anew.note}), and that teaches nothing; "
            "give weights of a model for the same classes"
        )


def stated_by(report: Any) -> Stated:
    if report.form == "run":
        checkpoint = file.read(Path(report.origin))
        return stated_by_run(plain(from_saved(checkpoint["run"]["config"], report.origin)), checkpoint)
    kind, _, name = report.origin.partition(":")
    if kind == "timm":
        import timm  # its weights have been loaded

        config: Any = timm.get_pretrained_cfg(name)
        return Stated(Norm(list(config.mean), list(config.std)), config.input_size[-1])
    return Stated()


def stated_by_run(config: dict[str, Any], checkpoint: dict[str, Any]) -> Stated:
    data = config["data"]
    return Stated(Norm(data["mean"], data["std"]), data["image_size"], list(checkpoint["run"]["class_names"]))


def try_out(teacher: Teacher, data: dict[str, Any]) -> None:
    """Raise ConfigError unless it gives logits of the data's classes for one of its images."""
    size = data["image_size"]
    try:
        logits = teacher(torch.zeros(1, data["in_chans"], size, size))
    except VitlabError:
        raise
    except Exception as error:  # whatever a model of another library raises
        reason = str(error).strip().split("\n")[0]
        shape = f"{data['in_chans']}x{teacher.image_size}x{teacher.image_size}"
        raise ConfigError(f"the teacher gives no logits for images of {shape}: {reason}") from error
    if logits.shape != (1, data["num_classes"]):
        raise ConfigError(
            f"the teacher tells {logits.shape[-1]} classes apart, and data.num_classes is {data['num_classes']}; give "
            "one of the same classes"
        )
