"""Calibrate the probabilities of the best model before it is tested, and learn which images are of none of its classes.

n samples, K classes, D features
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from vitlab.callbacks.known_classes_file import save_known_classes
from vitlab.data.batches.batch_size import divide_batch
from vitlab.data.evaluation import evaluation_batches
from vitlab.data.targets import OneClass
from vitlab.distributed.fully_sharded import unshard_weights
from vitlab.distributed.gathering import gather_from_all_ranks
from vitlab.models.representation import classify_and_represent, find_heads
from vitlab.ranges import Rate
from vitlab.tasks.calibration import fit_temperature, measure_calibration
from vitlab.tasks.known_classes import KnownClasses
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.task import is_below_all

MOST, LEAST_OF_A_CLASS = 10_000, 20  # training images that the classes are learned from: so many, or of each class


@dataclass(kw_only=True, eq=False)
class Calibration(Callback):
    """Fits one temperature on the logits of the validation split, before the first batch of the test, and lets the task
    use it. For images with one class each, it also fits `KnownClasses` to training images, takes `false_alarm_rate` of
    the validation images for unknown, and writes a file of that into the run's folder; null: it does not.

    `found` holds the temperature, the number of samples, and what was measured on them before and after; None for tasks
    without classes, and where the trainer leaves validation batches out."""

    false_alarm_rate: Rate | None
    found: dict[str, Any] | None = field(default=None, init=False)

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        task = pl_module
        if not isinstance(task, Supervised) or trainer.fast_dev_run or is_below_all(trainer.limit_val_batches):
            return
        self.found, task.temperature, task.known = None, 1.0, None  # of earlier weights, where this is a second test
        validation = read_split(trainer, task, "val")
        if validation is None:
            return
        before = measure_calibration(task.probabilities(validation.logits), validation.target)
        task.temperature = fit_temperature(validation.logits, validation.target)
        after = measure_calibration(task.probabilities(validation.logits), validation.target)
        self.found = {
            "temperature": task.temperature,
            "samples": len(validation.target),
            "before": before,
            "after": after,
        }
        if self.false_alarm_rate is not None and validation.features is not None:
            places = choose_places(trainer.datamodule.splits["train"].targets)
            training = read_split(trainer, task, "train", places)
            assert training is not None
            assert training.features is not None
            known = KnownClasses.fit(training.features, training.target)
            task.known = known.accept(validation.features, self.false_alarm_rate)
            self.found["false_alarm_rate"] = self.false_alarm_rate
            save_known_classes(trainer, task.known)


class Outputs(NamedTuple):
    """What the model computes of a split: logits (n, K), the features (n, D) of images with one class each, and the
    labels (n,) or (n, K)."""

    logits: Tensor
    features: Tensor | None
    target: Tensor


def read_split(
    trainer: pl.Trainer, task: Supervised, split: str, places: Sequence[int] | None = None
) -> Outputs | None:
    """Compute the outputs of a whole split, or of those places, each rank those of its share; None where no image could
    be read."""
    unshard_weights(task)  # ranks may have numbers of batches of their own
    datamodule = trainer.datamodule
    size, _ = divide_batch(datamodule.global_batch_size, datamodule.device_batch_size, trainer.world_size)
    batches = evaluation_batches(
        datamodule,
        split,
        batch_size=size,
        device=task.device,
        places=places,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        processes=trainer.num_devices,
    )
    represents = issubclass(task.learns_from, OneClass) and bool(find_heads(task.model))
    parts = []
    with trainer.precision_plugin.forward_context():
        for batch in batches:
            inputs, target = batch.view.arguments(), task.learns_from.hard_labels(batch.target)
            outputs = classify_and_represent(task.model, *inputs) if represents else (task(*inputs),)
            parts.append((target.cpu(), *(output.float().cpu() for output in outputs)))
    parts = gather_from_all_ranks(parts)
    if not parts:
        return None
    target, logits, *features = (torch.cat(part) for part in zip(*parts, strict=True))
    return Outputs(logits, features[0] if features else None, target)


def choose_places(targets: Any) -> list[int]:
    """Choose the places of at most `MOST` images, as many of each class, or `LEAST_OF_A_CLASS` of each."""
    classes = np.asarray(targets.values)
    share = max(LEAST_OF_A_CLASS, MOST // (int(classes.max()) + 1))
    order = np.argsort(classes, kind="stable")  # images of a class beside each other
    _, first, counts = np.unique(classes[order], return_index=True, return_counts=True)
    within = np.arange(len(order)) - np.repeat(first, counts)
    return sorted(order[within < share].tolist())
