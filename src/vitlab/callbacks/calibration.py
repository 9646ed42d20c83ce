"""Calibrate the probabilities of the best model before it is tested.

n samples, K classes
"""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.data.batches.batch_size import divide_batch
from vitlab.data.evaluation import evaluation_batches
from vitlab.distributed.fully_sharded import unshard_weights
from vitlab.distributed.gathering import gather_from_all_ranks
from vitlab.tasks.calibration import fit_temperature, measure_calibration
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.task import is_below_all


class Calibration(Callback):
    """Fits one temperature on the logits of the validation split, before the first batch of the test, and lets the task
    use it. `found` holds the temperature, the number of samples, and what was measured on them before and after; None
    for tasks without classes, and where the trainer leaves validation batches out."""

    found: dict[str, Any] | None = None

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        task = pl_module
        if not isinstance(task, Supervised) or trainer.fast_dev_run or is_below_all(trainer.limit_val_batches):
            return
        logits, target = validation_logits(trainer, task)
        if not len(target):
            return
        task.temperature = 1.0  # of earlier weights, where this is a second test
        before = measure_calibration(task.probabilities(logits), target)
        task.temperature = fit_temperature(logits, target)
        after = measure_calibration(task.probabilities(logits), target)
        self.found = {"temperature": task.temperature, "samples": len(target), "before": before, "after": after}


def validation_logits(trainer: pl.Trainer, task: Supervised) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logits of the whole validation split, each rank those of its share. -> (n, K) and (n,) or (n, K)"""
    unshard_weights(task)  # ranks may have numbers of batches of their own
    datamodule = trainer.datamodule
    size, _ = divide_batch(datamodule.global_batch_size, datamodule.device_batch_size, trainer.world_size)
    batches = evaluation_batches(
        datamodule,
        "val",
        batch_size=size,
        device=task.device,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        processes=trainer.num_devices,
    )
    parts = []
    with trainer.precision_plugin.forward_context():
        for batch in batches:
            target = task.learns_from.hard_labels(batch.target)
            parts.append((task(*batch.view.arguments()).float().cpu(), target.cpu()))
    parts = gather_from_all_ranks(parts)
    if not parts:
        return torch.empty(0, task.num_classes), torch.empty(0)
    logits, targets = zip(*parts, strict=True)
    return torch.cat(logits), torch.cat(targets)
