"""Caches: training images kept so that they need not be read and decoded in each epoch."""

from vitlab.data.cache.cache import CACHES, Cache
from vitlab.data.cache.decoded import cache_decoded
from vitlab.data.cache.device import CropBatch, CropsOnly, DeviceImages, copy_to_device, cut_out, holds_pixels
from vitlab.data.cache.encoded import cache_encoded

__all__ = [
    "CACHES",
    "Cache",
    "CropBatch",
    "CropsOnly",
    "DeviceImages",
    "cache_decoded",
    "cache_encoded",
    "copy_to_device",
    "cut_out",
    "holds_pixels",
]
