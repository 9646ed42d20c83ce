"""Self-distillation without labels: DINO (Caron et al., 2021, arXiv:2104.14294, algorithm 1).

B batch, T views the teacher sees, V views the student sees, K outputs
"""

import copy
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from vitlab.data.batches.batch import Batch, View
from vitlab.data.images.multi_crop import MultiCrop
from vitlab.distributed.gathering import average_over_ranks
from vitlab.distributed.sharding import get_own_parameters
from vitlab.errors import ConfigError
from vitlab.losses import self_distillation, teacher_targets
from vitlab.models import SelfDistilled
from vitlab.ranges import Positive, Share
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class SelfDistillation(Task):
    """The student learns to say of every view what the teacher says of the large ones. The teacher is an average of
    the student, whose `momentum` rises to 1 by a cosine; its outputs are centred, by a mean that moves by
    1 - `center_momentum` with each batch, and sharpened by its temperature.

    Evaluation compares the two on the whole image. `entropy` is that of the teacher's outputs over log K: near 0 or 1
    in all images they have collapsed. Raises ValueError for another model.
    """

    compares_views = True
    model: SelfDistilled
    center: Tensor

    def __init__(
        self,
        *,
        model: nn.Module,
        momentum: Share,
        center_momentum: Share,
        student_temperature: Positive,
        teacher_temperature: Positive,
        **others: Any,
    ):
        if not isinstance(model, SelfDistilled):
            raise ValueError(f"the model is a {type(model).__name__}; choose one with a projection, such as dino_s16")
        super().__init__(model=model, **others)
        self.teacher = copy.deepcopy(model).requires_grad_(False)
        self.momentum, self.center_momentum = momentum, center_momentum
        self.temperatures = student_temperature, teacher_temperature
        self.register_buffer("center", torch.zeros(model.projection.prototypes.shape[0]))

    def new_metrics(self, stage: str) -> MetricCollection:
        return MetricCollection({"entropy": MeanMetric(nan_strategy="disable")})

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        crop = datamodule.images.train_crop
        if not isinstance(crop, MultiCrop) or datamodule.images.num_views < 2:
            raise ConfigError("task=self_distillation compares views of an image; choose crop=multi_crop")
        self.num_large = crop.num_large

    def train(self, mode: bool = True) -> "SelfDistillation":
        super().train(mode)
        self.teacher.eval()
        return self

    def shardable_models(self) -> list[nn.Module]:
        return [self.model, self.teacher]

    def on_train_start(self) -> None:
        super().on_train_start()
        if self.global_step == 0:  # weights may have been loaded since
            self.teacher.load_state_dict(self.model.state_dict())

    def training_losses(self, batch: Batch) -> Tensor:
        student = compute_logits(self.model, batch.views)
        with torch.no_grad():
            teacher = torch.stack(compute_logits(self.teacher, batch.views[: self.num_large])).float()  # (T, B, K)
            targets = self.targets(teacher, "fit")
            mean = average_over_ranks(teacher.mean(dim=(0, 1)))
            self.center.lerp_(mean, 1 - self.center_momentum)
        return self_distillation([logits.float() for logits in student], list(targets), self.temperatures[0])

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        student, teacher = (compute_logits(model, batch.views)[0].float() for model in (self.model, self.teacher))
        return self_distillation([student], [self.targets(teacher, stage)], self.temperatures[0]), {}

    def targets(self, teacher: Tensor, stage: str) -> Tensor:
        """Turn what the teacher says into targets, and note their entropy. (..., K) -> (..., K)"""
        targets = teacher_targets(teacher, self.center, self.temperatures[1])
        entropy = torch.special.entr(targets).sum(dim=-1) / math.log(len(self.center))
        self.metrics[stage]["entropy"].update(entropy.flatten())
        return targets

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Let the teacher follow the student: θₜ ← m·θₜ + (1 - m)·θₛ."""
        super().optimizer_step(*args, **kwargs)
        done = self.global_step / max(self.num_steps, 1)
        rest = (1 - self.momentum) * (1 + math.cos(math.pi * min(done, 1))) / 2  # 1 - m
        with torch.no_grad():
            teacher, student = (get_own_parameters(model).values() for model in (self.teacher, self.model))
            torch._foreach_lerp_([*teacher], [*student], rest)


def compute_logits(model: nn.Module, views: Sequence[View]) -> list[Tensor]:
    """Compute a model's logits for each view (B, K); views of one size go through it together."""
    logits: list[Tensor] = []
    for _, group in groupby(views, key=lambda view: view.inputs.shape):
        same = list(group)
        together = View(torch.cat([view.inputs for view in same]), same[0].grid)
        logits += model(*together.arguments()).chunk(len(same))
    return logits
