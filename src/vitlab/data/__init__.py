"""Patched image data: sources, splits, order, crops, augmentation, batches."""

from vitlab.data.batches.mixing import Mixing
from vitlab.data.batches.resolution import ProgressiveResolution
from vitlab.data.datamodule import ImageDataModule
from vitlab.data.images.augmentation import GaussianBlur, RandomErasing
from vitlab.data.images.crops import CenterCrop, RandomResizedCrop, ShiftedCrop, TokenBudget, WholeImage
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
