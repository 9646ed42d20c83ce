"""Patched image data: sources, splits, order, transforms, batches."""

from vitlab.data.datamodule import ImageDataModule
from vitlab.data.digits import Digits
from vitlab.data.folder import Folder
from vitlab.data.mixing import Mixing
from vitlab.data.synthetic import Synthetic
from vitlab.data.torchvision_sources import TorchvisionSource

__all__ = ["Digits", "Folder", "ImageDataModule", "Mixing", "Synthetic", "TorchvisionSource"]
