"""Published checkpoints into our names and back: timm, Hugging Face, torchvision, JAX, Facebook Research, own runs."""

from vitlab.weights.transfer import load
from vitlab.weights.transfer_table import Report
from vitlab.weights.trocr import read_tokenizer

__all__ = ["Report", "load", "read_tokenizer"]
