"""Masked autoencoding: the hidden patches of an image are predicted from those that are seen (He et al., 2022,
arXiv:2111.06377).

B batch, C channels, P patch_size, N patches, K patches that are seen
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitlab.data.batches.batch import Batch
from vitlab.errors import ConfigError
from vitlab.layers import hidden_patches, num_hidden, random_keep
from vitlab.losses import denormalize_patches, masked_reconstruction
from vitlab.models import MaskedAutoencoder
from vitlab.ranges import Rate
from vitlab.seeding import draw_numbers
from vitlab.tasks.task import Task
from vitlab.tasks.training_data import TrainingData


class MaskedAutoencoding(Task):
    """Predicts the patches of an image that are hidden, `mask_ratio` of them: others at each step, and in evaluation
    always the same of an image, whatever the batch. Labels are not looked at.

    `normalize_target`: each patch is predicted less its own mean, over its own standard deviation. Raises ValueError
    for a model that is no masked autoencoder, and a ratio that hides or leaves nothing.
    """

    model: MaskedAutoencoder

    def __init__(self, *, model: nn.Module, mask_ratio: Rate, normalize_target: bool, **others: Any):
        if not isinstance(model, MaskedAutoencoder):
            raise ValueError(
                f"the model is a {type(model).__name__}, which predicts no patches; choose a masked autoencoder, such "
                "as "
                "model=mae_b16"
            )
        h, w = model.encoder.patch_embed.grid
        num_hidden(h * w, mask_ratio)  # refuses ratios out of range now
        super().__init__(model=model, **others)
        self.mask_ratio = mask_ratio
        self.normalize_target = normalize_target

    def plan(self, num_steps: int, datamodule: TrainingData, record: dict[str, Any]) -> None:
        super().plan(num_steps, datamodule, record)
        if datamodule.images.mixed_sizes:
            raise ConfigError("a masked autoencoder takes images of one size; choose a crop= without a token budget")

    def forward(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Hide the patches with the most noise (B, N) -> prediction (B, N, C·P·P), and true where a patch was hidden
        (B, N)"""
        keep = random_keep(noise, self.mask_ratio)  # (B, K)
        return self.model(*batch.view.arguments(), keep), hidden_patches(keep, noise.shape[1])

    def loss(self, batch: Batch, noise: Tensor) -> Tensor:
        """Compute the loss of each image. -> (B,)"""
        prediction, mask = self(batch, noise)
        return masked_reconstruction(prediction, batch.view.inputs, mask, normalize=self.normalize_target)

    def training_losses(self, batch: Batch) -> Tensor:
        return self.loss(batch, torch.rand(batch.view.inputs.shape[:2], device=batch.view.inputs.device))

    def evaluate_batch(self, batch: Batch, stage: str) -> tuple[Tensor, dict[str, Any]]:
        return self.loss(batch, self.draw_noise(batch)), {}

    def draw_noise(self, batch: Batch) -> Tensor:
        """Draw noise as a function of the seed and the place of each image in its split. -> (B, N)"""
        index = batch.index.cpu()
        counters = torch.stack([torch.full_like(index, self.seed), index], dim=1).numpy()
        noise = draw_numbers("mask", counters, batch.view.inputs.shape[1])
        return torch.from_numpy(noise).float().to(batch.view.inputs.device)

    def reconstruct(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Reconstruct as evaluation does: patches (B, N, C·P·P), predicted where they were hidden, and true there (B,
        N). A target that was normalised gets the mean and deviation of the true patch back, which the model does not
        predict."""
        prediction, mask = self(batch, self.draw_noise(batch))
        if self.normalize_target:
            prediction = denormalize_patches(prediction, batch.view.inputs)
        return torch.where(mask[..., None], prediction.float(), batch.view.inputs), mask
