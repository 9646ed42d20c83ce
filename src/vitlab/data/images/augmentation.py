"""Augmentations that torchvision lacks, on Pillow images or uint8 tensors; all draw from torch's generator alone.

C channels, H W image height and width, h w those of an erased box
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from vitlab.errors import ConfigError
from vitlab.ranges import Positive, Real, Share
from vitlab.seeding import seed_cpu


class RandomErasing(v2.RandomErasing):
    """With probability `p` a box of random area, shape and place is filled with noise, a value for each pixel and
    channel (Zhong et al., 2017, arXiv:1708.04896).

    `scale` is the range of its share of the area, `ratio` that of height to width. The noise is normal, with `mean` and
    `std` of each channel in [0, 1] (timm, DeiT), or, where these are null, uniform over all values (the paper). A `std`
    of zeros gives a constant. torchvision's own noise is that of normalised images, and means nothing in uint8.

    Raises ValueError for half of a distribution, ConfigError for one that does not fit the image's channels.
    """

    def __init__(
        self,
        *,
        p: Share,
        scale: Sequence[Share],
        ratio: Sequence[Positive],
        mean: Sequence[Real] | None,
        std: Sequence[Positive] | None,
    ):
        super().__init__(p=p, scale=scale, ratio=ratio, value="random")
        if (mean is None) != (std is None) or (mean and std and len(mean) != len(std)):
            raise ValueError(
                f"mean {mean} and std {std} of the noise must both be null, or have one value for each channel"
            )
        self.mean = None if mean is None else torch.tensor(mean).view(-1, 1, 1)
        self.std = None if std is None else torch.tensor(std).view(-1, 1, 1)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        params = super().make_params(flat_inputs)
        noise = params["v"]  # (C, h, w), or None where no box was found
        if noise is None:
            return cast(dict[str, Any], params)
        if self.mean is None or self.std is None:
            return cast(dict[str, Any], params | {"v": torch.randint(0, 256, noise.shape, dtype=torch.uint8)})
        if len(self.mean) != len(noise):
            raise ConfigError(
                f"augmentation: the noise of RandomErasing has {len(self.mean)} channels, but the image {len(noise)}"
            )
        noise = (noise * self.std + self.mean).mul(255).round().clamp(0, 255)
        return cast(dict[str, Any], params | {"v": noise.to(torch.uint8)})


class GaussianBlur(v2.Transform):
    """Blurred by a Gaussian of random width: `sigma` is its range in pixels. Pillow's, at half of torchvision's time,
    where the image is Pillow's. Raises ValueError for a range that is none.
    """

    def __init__(self, *, sigma: Sequence[Positive]):
        super().__init__()
        if len(sigma) != 2 or not 0 < sigma[0] <= sigma[1]:
            raise ValueError(f"sigma {list(sigma)} is not a range of two numbers above 0, the smaller first")
        self.sigma = (sigma[0], sigma[1])

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"sigma": torch.empty(1).uniform_(*self.sigma).item()}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        sigma = params["sigma"]
        if isinstance(inpt, Image.Image):
            return inpt.filter(ImageFilter.GaussianBlur(sigma))
        return F.gaussian_blur(inpt, kernel_size=2 * round(3 * sigma) + 1, sigma=sigma)  # three widths to each side


def check_augmentation(key: str, augmentation: Callable[[Any], Any], in_chans: int) -> None:
    """Raise ConfigError for an augmentation that does not take images of so many channels. Most of torchvision's take 1
    or 3, and say so only when an operation is drawn that does not: it is tried on a blank image, with many draws. Of
    some values, too, they say only then that there are none."""
    usual = in_chans in (1, 3)
    blank = np.zeros((32, 32, in_chans), dtype=np.uint8)
    pillow = blank[:, :, 0] if in_chans == 1 else blank
    image = Image.fromarray(pillow) if in_chans in (1, 3, 4) else torch.from_numpy(blank).permute(2, 0, 1)
    for draw in range(1 if usual else 64):
        try:
            with seed_cpu(draw):
                augmentation(image)
        except (TypeError, ValueError, OSError) as error:
            if usual:
                raise ConfigError(f"{key}: {error}") from error
            raise ConfigError(
                f"{key}: not for images of {in_chans} channels, only of 1 or 3; set augmentation=none or "
                "augmentation=erasing"
            ) from error
