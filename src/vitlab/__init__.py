"""vitlab: train, study and ship Vision Transformers."""

__version__ = "0.1.0"
