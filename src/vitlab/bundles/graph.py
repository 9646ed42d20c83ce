"""What is exported of a model: modules whose inputs and outputs are tensors, with names.

B batch, C channels, H W image height and width, K classes, D features
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitlab.bundles.resizing import Resize
from vitlab.models.representation import classify_and_represent
from vitlab.tasks.known_classes import KnownClasses

Probabilities = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Graph:
    """A module, its inputs by name, with an example of each, the names of its outputs, and the axes that vary: for each
    input, axis -> name."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: Sequence[str]
    axes: dict[str, dict[int, str]]

    @torch.no_grad()
    def compute(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the outputs by torch, by name."""
        found = self.module(*inputs.values())
        return dict(zip(self.outputs, found if isinstance(found, tuple) else (found,), strict=True))


class Scorer(nn.Module):
    """Normalised images (B, C, H, W) -> logits (B, K), calibrated probabilities (B, K), and, where classes are `known`,
    the novelty of each image (B,): above 1, it is of none of the classes."""

    def __init__(self, model: nn.Module, probabilities: Probabilities, known: KnownClasses | None):
        super().__init__()
        self.model, self.probabilities, self.known = model, probabilities, known
        for name, part in () if known is None else zip(known._fields, known, strict=True):
            if isinstance(part, Tensor):
                self.register_buffer(name, part)

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        if self.known is None:
            logits = self.model(pixels)
            return logits, self.probabilities(logits)
        logits, features = classify_and_represent(self.model, pixels)
        own = dict(self.named_buffers(recurse=False))  # a file holds the tensors by name
        known = KnownClasses._make((self.known._asdict() | own).values())
        return logits, self.probabilities(logits), known.scale(known.measure(features))

    @property
    def outputs(self) -> list[str]:
        return ["logits", "probabilities"] + ([] if self.known is None else ["novelty"])


class ImageClassifier(nn.Module):
    """Images (B, H, W, C) in uint8, of any size -> what the `scorer` gives of them but the logits."""

    mean: Tensor
    std: Tensor

    def __init__(self, scorer: Scorer, resize: Resize, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.scorer, self.resize = scorer, resize
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        pixels = (self.resize(image) / 255 - self.mean) / self.std
        _, *found = self.scorer(pixels)
        return tuple(found)

    def denormalize(self, pixels: Tensor) -> Tensor:
        """Give images whose pixels these are, (B, C, S, S) -> (B, S, S, C) in uint8."""
        return ((pixels * self.std + self.mean) * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()
