"""Classify images with a bundle that `vitlab export format=bundle` wrote, without PyTorch and vitlab."""

from vitlab_runtime.errors import BundleError
from vitlab_runtime.predictor import Predictor, load

__all__ = ["BundleError", "Predictor", "load"]
