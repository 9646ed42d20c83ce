"""How well classes can be told from the features themselves, as they come to be: nearest neighbours and few-shot
regression at validation, for runs whose own metrics do not say (self-supervised ones), or say too late.

n images, D features
"""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from vitlab.data.batches.batch_size import divide_batch
from vitlab.data.evaluation import evaluation_batches
from vitlab.data.targets import OneClass
from vitlab.distributed.gathering import gather_from_all_ranks
from vitlab.errors import ConfigError
from vitlab.features import Features, choose_shots, extract, join_features, nearest_neighbours, ridge
from vitlab.ranges import Count, Positive, Seed
from vitlab.seeding import make_seed
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class FeatureProbe(Callback):
    """Logs val/knn_acc1 and, for each of `shots`, val/5shot_acc1 at the validations of every `every_n_epochs`-th epoch:
    classes of the val split by the features of at most `max_train` training images, the same ones each time.

    `k` neighbours vote, with `temperature`; `l2` regularizes the regression. The weights are those that validation
    sees, averages among them, in its precision. Training is what it would be without. Each of several ranks takes its
    share of the images, then all of them have all features and compute the same figures.
    """

    def __init__(
        self,
        *,
        every_n_epochs: Count,
        max_train: Count | None,
        k: Count,
        temperature: Positive,
        shots: list[Count],
        l2: Positive,
        seed: Seed,
    ):
        self.every_n_epochs = every_n_epochs
        self.max_train = max_train
        self.k = k
        self.temperature = temperature
        self.shots = shots
        self.l2 = l2
        self.seed = seed
        self.figures: dict[str, float] = {}

    @property
    def names(self) -> list[str]:
        return ["val/knn_acc1", *(f"val/{shots}shot_acc1" for shots in self.shots)]

    def check_run(self, trainer: pl.Trainer, task: Task, datamodule: TrainingData) -> None:
        """Raise ConfigError for data that cannot be probed so."""
        if not isinstance(datamodule.targets, OneClass):
            kind = datamodule.targets.kind
            raise ConfigError(
                f"callbacks.feature_probe needs images with one class each, but this data has images {kind}; remove "
                "it: ~callbacks.feature_probe"
            )
        known = len(self.places(len(datamodule.splits["train"])))
        if self.k > known:
            raise ConfigError(f"callbacks.feature_probe.k {self.k} is more neighbours than the {known} training images")

    def places(self, n: int) -> list[int]:
        """Choose the training images to look at: all n, or a subset that depends on the seed alone."""
        if self.max_train is None or self.max_train >= n:
            return list(range(n))
        generator = torch.Generator().manual_seed(make_seed("feature_probe", self.seed))
        return torch.randperm(n, generator=generator)[: self.max_train].sort().values.tolist()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name in self.names:  # Lightning would go on showing those of an earlier epoch
            trainer.callback_metrics.pop(name, None)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Start here, not with the validation: by now averaged weights are in place, whichever callback runs first."""
        due = trainer.state.fn == "fit" and (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if batch_idx == 0 and due and not trainer.sanity_checking and not trainer.fast_dev_run:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed for its workers
                self.figures = self.probe(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.figures:
            self.log_dict(self.figures, logger=False)
            for logger in trainer.loggers:
                logger.log_metrics(self.figures, step=trainer.global_step)
        self.figures = {}

    def probe(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, float]:
        datamodule, device = trainer.datamodule, pl_module.device
        train = self.features(trainer, pl_module, "train", self.places(len(datamodule.splits["train"])))
        val = self.features(trainer, pl_module, "val", None)
        options: dict[str, Any] = {"num_classes": datamodule.num_classes}
        classes = nearest_neighbours(
            train.values.to(device),
            train.target.to(device),
            val.values.to(device),
            k=[min(self.k, len(train.values))],  # some may be unreadable
            temperature=self.temperature,
            **options,
        )
        told = [classes.cpu()]
        for shots in self.shots:
            few = choose_shots(train.target, shots, self.seed)
            told.append(ridge(train.values[few], train.target[few], l2=[self.l2], **options).classes(val.values))
        right = [float((said[0] == val.target).float().mean()) for said in told]
        return dict(zip(self.names, right, strict=True))

    def features(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, split: str, places: list[int] | None
    ) -> Features:
        datamodule = trainer.datamodule
        size, _ = divide_batch(datamodule.global_batch_size, datamodule.device_batch_size, trainer.world_size)
        batches = evaluation_batches(
            datamodule,
            split,
            batch_size=size,
            device=pl_module.device,
            places=places,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            processes=trainer.num_devices,
        )
        with trainer.precision_plugin.forward_context():
            parts = extract(pl_module.model, batches)
        return join_features(gather_from_all_ranks(parts))
