"""Mix the images and labels of a batch on the device: mixup and CutMix.

mixup: Zhang et al., 2018, arXiv:1710.09412. CutMix: Yun et al., 2019, arXiv:1905.04899. B batch, K classes
"""

from typing import cast

import torch
from torch import Tensor
from torchvision.transforms import v2

from vitlab.ranges import Positive, Share
from vitlab.seeding import seed_cpu


class Mixing:
    """Mixup or CutMix for each batch: CutMix with probability `cutmix_rate`, neither with 1 - `rate`. Images (B, C, H,
    W), and how much of each class is in them (B, K) -> the same, mixed.

    Each image is mixed with the one before it in the batch; all random numbers come from the given seed. An alpha is
    the parameter of a Beta distribution.
    """

    def __init__(self, *, rate: Share, cutmix_rate: Share, mixup_alpha: Positive, cutmix_alpha: Positive):
        self.rate = rate
        self.cutmix_rate = cutmix_rate
        self.mixup = v2.MixUp(alpha=mixup_alpha)
        self.cutmix = v2.CutMix(alpha=cutmix_alpha)

    def __call__(self, images: Tensor, shares: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        with seed_cpu(seed):  # torchvision draws on the CPU: nothing waits for the device
            mixes, cuts = torch.rand(2).tolist()
            if mixes >= self.rate:
                return images, shares
            return cast(tuple[Tensor, Tensor], (self.cutmix if cuts < self.cutmix_rate else self.mixup)(images, shares))
