"""Build the parts of a run from the nodes of its config."""

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig
from torch.nn import Module

from vitlab.config.build import build
from vitlab.data import DataModule
from vitlab.tasks import Task
from vitlab.tasks.teacher import Teacher
from vitlab.vocabulary import Vocabulary

OF_TEXTS = {"decoding", "templates"}  # keys of tasks that have a vocabulary


@dataclass(frozen=True)
class Parts:
    """What a run is made of. The trainer has the loggers and callbacks, the task the model."""

    trainer: pl.Trainer
    datamodule: DataModule
    task: Task


def build_callbacks(cfg: DictConfig) -> list[pl.Callback]:
    return [build(node, f"callbacks.{key}") for key, node in cfg.callbacks.items()]


def build_datamodule(cfg: DictConfig, source: Any) -> DataModule:
    """Build the data on an opened source, with all that is done to training images."""
    options = {key: build(cfg[key], key) for key in ("augmentation", "mixing", "resolution") if cfg.get(key)}
    datamodule: DataModule = build(cfg.data, "data", source=source, **options)
    return datamodule


def build_task(
    cfg: DictConfig, model: Module, teacher: Teacher | None = None, vocabulary: Vocabulary | None = None
) -> Task:
    """Build the task. One that has a teacher needs it in training alone; one that writes texts, or reads them beside
    images, has the vocabulary of its data."""
    task: Task = build(
        cfg.task,
        "task",
        model=model,
        **({"teacher": teacher} if "teacher" in cfg else {}),
        **({"vocabulary": vocabulary} if OF_TEXTS & set(cfg.task) else {}),
        optimization=build(cfg.optimizer, "optimizer"),
        schedule=lambda num_steps: build(cfg.schedule, "schedule", num_steps=num_steps),
    )
    return task
