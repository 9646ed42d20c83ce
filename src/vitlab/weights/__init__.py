"""Published checkpoints into our names and back: timm, Hugging Face, torchvision, JAX, Facebook Research, own runs."""

from vitlab.weights.towers import read_text_tokenizer
from vitlab.weights.transfer import load
from vitlab.weights.transfer_table import Report
from vitlab.weights.trocr import read_tokenizer
from vitlab.weights.view import InputSettings, find_view

__all__ = ["InputSettings", "Report", "find_view", "load", "read_text_tokenizer", "read_tokenizer"]
