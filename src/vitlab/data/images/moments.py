"""Compute mean and standard deviation of images.

C channels, H W image height and width
"""

import numpy as np
import torch
from torch import Tensor


def compute_moments(image: Tensor) -> np.ndarray:
    """Count the values of each channel, and sum them and their squares: uint8 (C, H, W) -> (3, C) int64"""
    values = image.flatten(1).to(torch.int64)  # (C, H·W)
    number = torch.full((len(values),), values.shape[1])
    return torch.stack([number, values.sum(dim=1), values.square().sum(dim=1)]).numpy()


def mean_and_std(moments: np.ndarray) -> tuple[list[float], list[float]]:
    """Give mean and standard deviation of each channel, of values in [0, 1]."""
    number, total, squares = moments.astype(float)
    mean = total / number
    return (mean / 255).tolist(), (np.sqrt(np.maximum(squares / number - mean**2, 0)) / 255).tolist()
