"""Classify images that may have several classes, or none: each class is a question of its own.

B batch, K classes
"""

import torch
from torch import Tensor

from vitlab.data.targets import SeveralClasses
from vitlab.tasks.supervised import Supervised


class MultilabelClassification(Supervised):
    """A loss on targets (B, K), 1 where the image has the class, judged by mean average precision, F1 of all answers at
    a probability of 0.5, and loss.

    Balanced class_weights make the images that have a class weigh as much as those that have not. Raises ValueError for
    a loss in which classes compete, as in a softmax.
    """

    learns_from = SeveralClasses
    labels = "several_classes"

    @staticmethod
    def balance_classes(counts: Tensor, num_images: int) -> Tensor:
        return (num_images - counts).clamp_min(1) / counts

    def probabilities(self, logits: Tensor) -> Tensor:
        """Give the probability of each class by itself. (B, K) -> (B, K)"""
        return (logits.float() / self.temperature).sigmoid()

    def predictions(self, logits: Tensor) -> Tensor:
        """Say of each class whether it is there: "yes" from a probability of 0.5 on. (B, K) -> (B, K) bool"""
        return logits > 0

    def try_loss(self) -> None:
        super().try_loss()
        K = self.num_classes
        if self.plain_loss(torch.full((1, K), 30.0), torch.ones(1, K)) > 1e-3:  # an image of all classes, as is said
            raise ValueError(
                "this loss allows one class for each image, but an image may have several; set loss=sigmoid_mean or "
                "loss=sigmoid"
            )
