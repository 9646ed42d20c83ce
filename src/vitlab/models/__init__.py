"""Architectures, one file each."""

from vitlab.models.deit import DistilledVisionTransformer
from vitlab.models.timm_model import timm_model
from vitlab.models.torchvision_model import torchvision_model
from vitlab.models.vit import VisionTransformer

__all__ = ["DistilledVisionTransformer", "VisionTransformer", "timm_model", "torchvision_model"]
