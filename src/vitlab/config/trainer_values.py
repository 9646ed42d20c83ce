"""Refuse values of the trainer that Lightning would take, before Lightning is imported."""

from omegaconf import DictConfig

from vitlab.config.annotations import check_value
from vitlab.config.foreign_ranges import TRAINER
from vitlab.config.found import OPEN
from vitlab.config.nodes import resolve_value
from vitlab.errors import ConfigError

OURS = {  # keys of the trainer that a run sets itself
    "default_root_dir": "a run writes to hydra.run.dir",
    "logger": "loggers are chosen by logger=",
    "callbacks": "callbacks are chosen by callbacks=",
    "plugins": "a run has its own",
}
PRECISIONS = ("32-true", "32", 32, "bf16-mixed", "bf16", "16-mixed", "16", 16, *OPEN)


def check_trainer(node: DictConfig) -> None:
    """Raise ConfigError for what Lightning would take, and this project does otherwise or not at all."""
    for key in TRAINER.keys() & node.keys():
        check_value(TRAINER[key], resolve_value(node[key]), f"trainer.{key}")
    for key, instead in OURS.items():
        if key in node:
            raise ConfigError(f"trainer.{key} is not read: {instead}")
    if node.get("gradient_clip_algorithm") not in (None, "norm"):
        raise ConfigError(
            "trainer.gradient_clip_algorithm cannot be chosen, because gradients are always clipped by their norm; "
            "leave it out"
        )
    if node.get("accumulate_grad_batches", 1) != 1:
        raise ConfigError(
            "trainer.accumulate_grad_batches follows from global_batch_size and data.device_batch_size; set these"
        )
    if node.get("overfit_batches", 0):
        raise ConfigError(
            "trainer.overfit_batches would train on different images in each epoch; use debug=overfit, or set "
            "data.split.labels_per_class, to train on few images"
        )
    if node.use_distributed_sampler:
        raise ConfigError("trainer.use_distributed_sampler would change the order of the samples; set it to false")


def check_precision(precision: str | int | None) -> None:
    """Raise ConfigError for a precision that Lightning has, and training here does not, and for one that nobody has."""
    if precision in ("16-true", "bf16-true"):
        raise ConfigError(
            f"trainer.precision={precision} stores the weights in half precision, which loses "
            "small updates; use bf16-mixed, 16-mixed or 32-true"
        )
    if precision not in PRECISIONS:
        raise ConfigError(
            f"trainer.precision={precision} is not a precision for training; use auto, bf16-mixed, 16-mixed or 32-true"
        )
