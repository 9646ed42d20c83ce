"""Patched image data: sources, splits, order, crops, augmentation, batches."""

from vitlab.data.augmentation import GaussianBlur, RandomErasing
from vitlab.data.crops import CenterCrop, RandomResizedCrop, ShiftedCrop, TokenBudget, WholeImage
from vitlab.data.datamodule import ImageDataModule
from vitlab.data.mixing import Mixing
from vitlab.data.resolution import ProgressiveResolution
from vitlab.data.sources import (
    Arrays,
    Digits,
    Folder,
    HuggingFace,
    ImageNet,
    Listing,
    Shards,
    Synthetic,
    SyntheticMultilabel,
    TorchvisionSource,
)

__all__ = [
    "Arrays",
    "CenterCrop",
    "Digits",
    "Folder",
    "GaussianBlur",
    "HuggingFace",
    "ImageDataModule",
    "ImageNet",
    "Listing",
    "Mixing",
    "ProgressiveResolution",
    "RandomErasing",
    "RandomResizedCrop",
    "Shards",
    "ShiftedCrop",
    "Synthetic",
    "SyntheticMultilabel",
    "TokenBudget",
    "TorchvisionSource",
    "WholeImage",
]
