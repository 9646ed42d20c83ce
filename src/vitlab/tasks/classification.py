"""Classify images, supervised: one class an image.

B batch, K classes
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from vitlab.data.targets import OneClass
from vitlab.errors import DataError
from vitlab.tasks.supervised import Supervised
from vitlab.tasks.training_data import TrainingData


class Classification(Supervised):
    """A loss on (mixed) classes, judged by loss and by the metrics of one class that `vitlab.monitors` declares: top-1,
    top-5 of more than five classes, and, at test, calibration error."""

    learns_from = OneClass
    labels = "one_class"

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        if len(datamodule.class_names) == 1:
            raise DataError(refuse_one_class(datamodule.class_names[0], Path(datamodule.splits["train"].name(0))))

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, K) -> (B, K), whatever the loss. Of logits that a sigmoid was trained on, one for each class by itself,
        the softmax is the probability of the class given that the image has exactly one: Πⱼ of σ(zₖ) and 1 - σ(zⱼ) is
        proportional to exp(zₖ)."""
        return (logits.float() / self.temperature).softmax(dim=1)

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, K) -> (B,)"""
        return logits.argmax(dim=1)


def refuse_one_class(name: str, image: Path) -> str:
    """Refuse data in which every image has the class `name`, among them this `image`."""
    told = f"the data has only one class, '{name}', but needs at least two"
    folder = next((parent for parent in image.parent.parents if parent.name == name), None)
    return f"{told}; if the classes are in that folder, set data.source.root={folder}" if folder else told
