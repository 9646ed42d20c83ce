"""Published checkpoints into our names and back: timm, Hugging Face, torchvision, JAX, Facebook Research, own runs."""

from vitlab.weights.report import Report
from vitlab.weights.transfer import load

__all__ = ["Report", "load"]
