"""Distil: learn from labels and from a teacher (Touvron et al., 2021, arXiv:2012.12877, section 4; Hinton et al., 2015,
arXiv:1503.02531).

B batch, C channels, H W image height and width, P patch_size, N patches, K classes, λ teacher_share, τ temperature
"""

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from vitlab.data.batches.batch import Batch
from vitlab.errors import ConfigError
from vitlab.layers import unpatchify
from vitlab.losses import hard_distillation, soft_distillation
from vitlab.models import DistilledVisionTransformer
from vitlab.ranges import Positive, Share
from vitlab.tasks.classification import Classification
from vitlab.tasks.label_metrics import top1
from vitlab.tasks.teacher import Teacher
from vitlab.tasks.training_data import TrainingData

MODES = ("soft", "hard")


class Distillation(Classification):
    """(1 - λ)·loss + λ·τ²·KL(teacher ‖ student), equation 2 in mode "soft", or (1 - λ)·loss + λ·cross-entropy with the
    teacher's class, equation 3 with λ ½, in mode "hard". The teacher sees the same (augmented, mixed) images.

    The class token of a DistilledVisionTransformer learns from the labels, its distillation token from the teacher; the
    one head of another model learns from both. `teacher` is None where nothing is learned any more. In training
    teacher_acc1 tells how often the teacher is right. Raises ValueError for another mode.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        teacher: Teacher | None,
        mode: str,
        teacher_share: Share,
        temperature: Positive,
        **others: Any,
    ):
        if mode not in MODES:
            raise ValueError(f"mode '{mode}' is not one of: {', '.join(MODES)}")
        super().__init__(model=model, **others)
        self.compilable = not isinstance(model, DistilledVisionTransformer)
        self.teacher = teacher
        self.mode = mode
        self.teacher_share = teacher_share
        self.temperature = temperature

    def new_metrics(self, stage: str) -> MetricCollection:
        metrics = super().new_metrics(stage)
        if stage == "fit":
            metrics.add_metrics({"teacher_acc1": top1(self.num_classes)})
        return metrics

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        if datamodule.images.train_crop.output_size() is None:
            raise ConfigError(
                "task=distillation needs images of one size, but crop=native gives several; choose another crop="
            )
        assert self.teacher is not None, "a run that learns has its teacher"
        known = self.teacher.class_names
        if known is not None and known != list(datamodule.class_names):
            raise ConfigError(
                f"the teacher knows {summary(known)}, but the data has {summary(datamodule.class_names)}; "
                "give "
                "a teacher with the same classes"
            )
        self.patch_size = datamodule.preprocessing.patch_size

    def on_fit_start(self) -> None:
        super().on_fit_start()
        assert self.teacher is not None
        self.teacher.to(self.device)

    def on_fit_end(self) -> None:
        """Free the device of a teacher that is needed no more."""
        assert self.teacher is not None
        self.teacher.to(torch.device("cpu"))

    def training_losses(self, batch: Batch) -> Tensor:
        assert self.teacher is not None
        taught = self.teacher(self.images(batch))
        from_labels, from_teacher = self.compute_both_logits(batch)
        logits = (from_labels.detach() + from_teacher.detach()) / 2
        self.count("fit", logits, batch.target)
        self.metrics["fit"]["teacher_acc1"].update(taught, self.learns_from.hard_labels(batch.target))
        learned = self.loss(from_labels, batch.target, **self.weighting())
        if self.mode == "soft":
            copied = soft_distillation(from_teacher, taught, self.temperature)
        else:
            copied = hard_distillation(from_teacher, taught)
        return (1 - self.teacher_share) * learned + self.teacher_share * copied

    def compute_both_logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Give the logits that learn from labels, and those that learn from the teacher. -> 2 x (B, K)"""
        if isinstance(self.model, DistilledVisionTransformer):
            from_labels, from_teacher = self.model.compute_both_logits(*batch.view.arguments()).unbind(dim=1)
            return from_labels, from_teacher
        logits = self(*batch.view.arguments())
        return logits, logits

    def images(self, batch: Batch) -> Tensor:
        """Put patches together again. -> (B, C, H, W)"""
        if self.patch_size is None:
            return batch.view.inputs
        return unpatchify(batch.view.inputs, self.patch_size, batch.view.grid)  # all images have one size: see plan


def summary(names: list[str]) -> str:
    """Say how many classes there are, and name the first."""
    return f"{len(names)} classes ({', '.join(map(str, names[:3]))}{' …' if len(names) > 3 else ''})"
