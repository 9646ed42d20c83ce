"""Make a classifier of a model of images and texts: its classes are captions.

K captions, D width of the image tower, F feature_dim
"""

import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models import ImageTextModel, VisionTransformer


class CaptionHead(nn.Module):
    """Pooled tokens of an image (B, D) -> how alike it is to each caption (B, K): the cosine, times the learned scale
    (Radford et al., 2021, arXiv:2103.00020, section 3.1.2)."""

    scale: Tensor
    captions: Tensor

    def __init__(self, model: ImageTextModel, captions: Tensor):
        super().__init__()
        self.projection, self.out_features = model.image_projection, len(captions)
        self.register_buffer("scale", model.logit_scale.detach().exp())
        self.register_buffer("captions", captions.detach())

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.normalize(self.projection(x).float(), dim=-1) @ self.captions.T


def classify_by_captions(model: ImageTextModel, captions: Tensor) -> VisionTransformer:
    """Give the image tower a head that compares images with the features of captions (K, F); the model is no longer
    one of images and texts then."""
    model.encoder.head = CaptionHead(model, captions)  # type: ignore[assignment]  # in the place of Identity
    return model.encoder
