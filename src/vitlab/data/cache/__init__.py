"""Caches: training images kept so that they need not be read and decoded in each epoch."""

from vitlab.data.cache.cache import CACHES, Cache
from vitlab.data.cache.decoded import decoded
from vitlab.data.cache.device import CropBatch, CropsOnly, DeviceImages, cut_out, held_on, holds_pixels
from vitlab.data.cache.encoded import encoded

__all__ = [
    "CACHES",
    "Cache",
    "CropBatch",
    "CropsOnly",
    "DeviceImages",
    "cut_out",
    "decoded",
    "encoded",
    "held_on",
    "holds_pixels",
]
