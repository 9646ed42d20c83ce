"""Wrap a trained model that another one learns from.

B batch, C channels, H W image height and width, K classes
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(NamedTuple):
    """What images are normalised with: a value for each channel, of pixels in [0, 1]."""

    mean: list[float]
    std: list[float]


class Teacher:
    """Images (B, C, H, W), in the student's normalisation -> logits (B, K), in evaluation mode and without gradient.

    The images are normalised as the teacher `wants` them, and resized to `image_size` pixels. A teacher is no module:
    it is in no state dict, and learns nothing. `class_names` are those it was trained on, None where nobody knows.
    """

    def __init__(
        self, model: nn.Module, *, given: Norm, wanted: Norm, image_size: int, class_names: list[str] | None = None
    ):
        self.model = model.eval().requires_grad_(False)
        self.image_size = image_size
        self.class_names = class_names
        self.factor, self.offset = (
            None if value is None else value.view(1, -1, 1, 1) for value in renormalization(given, wanted)
        )

    def to(self, device: torch.device) -> "Teacher":
        self.model.to(device)
        if self.factor is not None and self.offset is not None:
            self.factor, self.offset = self.factor.to(device), self.offset.to(device)
        return self

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        if self.factor is not None and self.offset is not None:
            images = torch.addcmul(self.offset, images, self.factor)
        if images.shape[-2:] != (self.image_size, self.image_size):
            size = (self.image_size, self.image_size)
            images = F.interpolate(images.float(), size, mode="bilinear", antialias=True)
        return self.model(images)


def renormalization(given: Norm, wanted: Norm) -> tuple[Tensor | None, Tensor | None]:
    """Give the factor and offset that turn (x - mean) / std of one kind into another; None where they are the same."""
    if given == wanted:
        return None, None
    mean, std = (torch.tensor(values) for values in given)
    wanted_mean, wanted_std = (torch.tensor(values) for values in wanted)
    return std / wanted_std, (mean - wanted_mean) / wanted_std
