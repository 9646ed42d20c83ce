"""Architectures, one file each."""

from vitlab.models.vit import VisionTransformer

__all__ = ["VisionTransformer"]
