"""Data sets: where images and their classes come from; one file for each kind."""

from vitlab.data.sources.arrays import Arrays
from vitlab.data.sources.digits import Digits
from vitlab.data.sources.folder import Folder
from vitlab.data.sources.huggingface import HuggingFace
from vitlab.data.sources.imagenet import ImageNet
from vitlab.data.sources.listing import Listing
from vitlab.data.sources.shards import Shards
from vitlab.data.sources.synthetic import Synthetic, SyntheticMultilabel
from vitlab.data.sources.torchvision_sources import TorchvisionSource

__all__ = [
    "Arrays",
    "Digits",
    "Folder",
    "HuggingFace",
    "ImageNet",
    "Listing",
    "Shards",
    "Synthetic",
    "SyntheticMultilabel",
    "TorchvisionSource",
]
