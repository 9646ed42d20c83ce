"""Hidden patches predicted from those that are seen (He et al., 2022, arXiv:2111.06377, section 3).

B batch, N patches, E values of a patch (C·P·P)
"""

import torch
from torch import Tensor

EPS = 1e-6  # added to the variance, which is zero for a patch of one colour


def masked_reconstruction(prediction: Tensor, patches: Tensor, mask: Tensor, *, normalize: bool) -> Tensor:
    """Mean squared error over the hidden patches of each image. (B, N, E), (B, N, E), (B, N) true where hidden -> (B,)

    `normalize`: the prediction is of each patch less its own mean, over its own standard deviation. An image of which
    nothing is hidden costs 0.
    """
    target = normalize_patches(patches) if normalize else patches.float()
    error = (prediction.float() - target).square().mean(dim=2)  # (B, N)
    return (error * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)


def normalize_patches(patches: Tensor) -> Tensor:
    """Each patch with mean 0 and standard deviation 1. (B, N, E) -> (B, N, E)"""
    mean, std = statistics(patches)
    return (patches.float() - mean) / std


def denormalize_patches(prediction: Tensor, patches: Tensor) -> Tensor:
    """The inverse, to be looked at: predicted normalised patches, with the means and deviations of the true ones.
    (B, N, E), (B, N, E) -> (B, N, E)"""
    mean, std = statistics(patches)
    return prediction.float() * std + mean


def statistics(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the values of each patch (E > 1; variance over E - 1). -> (B, N, 1) each"""
    variance, mean = torch.var_mean(patches.float(), dim=2, keepdim=True)
    return mean, (variance + EPS).sqrt()
