"""The parts of a run, from the nodes of its config."""

from pathlib import Path

import pytorch_lightning as pl
from omegaconf import DictConfig
from torch.nn import Module

from vitlab.config.build import build, plain
from vitlab.config.job import Job
from vitlab.config.redaction import Redaction
from vitlab.data import ImageDataModule
from vitlab.errors import ConfigError
from vitlab.loggers import MetricsCSV
from vitlab.tasks import Task
from vitlab.tasks.teacher import Teacher


def build_loggers(
    cfg: DictConfig, folder: Path, job: Job, run_id: str, first_step: int, kept: Redaction
) -> list[pl.loggers.Logger]:
    """metrics.csv always, and those of the config, which are told what may be `kept` of it."""
    loggers: list[pl.loggers.Logger] = [MetricsCSV(folder=str(folder), first_step=first_step)]
    group = str(job.sweep.relative_to(job.sweep.parents[1])) if job.sweep else None
    for key, node in cfg.logger.items():
        name = f"{cfg.name}/{folder.name}"
        told = {"run_config": kept(plain(cfg)), "arguments": kept(job.overrides)}
        place = {"folder": str(folder), "name": name, "group": group, "run_id": run_id}
        loggers.append(build(node, f"logger.{key}", **place, **told))
    return loggers


def build_datamodule(cfg: DictConfig) -> ImageDataModule:
    """With all that is done to training images."""
    options = {key: build(cfg[key], key) for key in ("augmentation", "mixing", "resolution") if cfg[key]}
    return build(cfg.data, "data", **options)


def build_task(cfg: DictConfig, model: Module, teacher: Teacher | None = None) -> Task:
    """A task that has a teacher needs it in training alone."""
    return build(
        cfg.task,
        "task",
        model=model,
        **({"teacher": teacher} if "teacher" in cfg else {}),
        optimization=build(cfg.optimizer, "optimizer"),
        schedule=lambda num_steps: build(cfg.schedule, "schedule", num_steps=num_steps),
    )


def planned_steps(trainer: pl.Trainer, datamodule: ImageDataModule) -> int:
    """Optimizer steps of the whole run, from trainer.max_epochs and trainer.max_steps."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs * datamodule.trained_steps_per_epoch())
    if trainer.max_steps >= 0:
        limits.append(trainer.max_steps)
        if trainer.max_steps > limits[0] and not trainer.fast_dev_run:
            raise ConfigError(
                f"trainer.max_steps {trainer.max_steps:,} is more than the {limits[0]:,} steps of "
                f"trainer.max_epochs {trainer.max_epochs}; set trainer.max_epochs=-1 to end by steps, or "
                "trainer.max_steps=-1 to end by epochs"
            )
    if not limits:
        raise ConfigError("a run needs an end: set trainer.max_epochs or trainer.max_steps")
    return min(limits)
