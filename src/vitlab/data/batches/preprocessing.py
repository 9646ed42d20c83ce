"""The end of the data path, on the device: uint8 images become what the model takes.

B batch, C channels, H W image height and width, P patch_size, N patches
"""

import torch
from torch import Tensor, nn

from vitlab.data.batches.batch import Batch
from vitlab.data.batches.mixing import Mixing
from vitlab.layers import Grid, patchify


class Preprocessing(nn.Module):
    """Scale to [0, 1], subtract `mean` and divide by `std` (one value for each channel), and cut into patches.

    Raises ValueError when mean or std do not fit the channels.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, *, mean: list[float], std: list[float], in_chans: int, patch_size: int | None):
        super().__init__()
        for key, values in {"mean": mean, "std": std}.items():
            if len(values) != in_chans:
                raise ValueError(f"data.{key} has {len(values)} values, and data.in_chans is {in_chans}; give one each")
        if min(std) <= 0:
            raise ValueError(f"data.std {std} holds one that is not above 0")
        self.patch_size = patch_size
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def finished(self, batch: Batch) -> Batch:
        """What a model takes, of uint8 images (B, C, H, W) or of patches (B, N, C·P·P) of mixed sizes."""
        self.to(batch.inputs.device)
        if batch.inputs.ndim == 4:
            inputs, grid = self.cut(batch.inputs)
            batch = batch._replace(inputs=inputs, grid=grid)
        return batch._replace(inputs=self.normalize(batch.inputs))

    def mixed(self, batch: Batch, mixing: Mixing, seed: int) -> Batch:
        """The same of uint8 images (B, C, H, W), mixed with their labels in between."""
        self.to(batch.inputs.device)
        images, target = mixing(self.normalize(batch.inputs), batch.target, seed)
        inputs, grid = self.cut(images)
        return batch._replace(inputs=inputs, target=target, grid=grid)

    def normalize(self, images: Tensor) -> Tensor:
        """From [0, 255] (B, C, H, W), or patches (B, N, C·P·P), to float of the same shape."""
        mean, std = self.mean, self.std
        if images.ndim == 3:  # patches: a channel's values follow each other
            size = images.shape[-1] // mean.numel()
            mean, std = (value.flatten().repeat_interleave(size) for value in (mean, std))
        return images.to(torch.float32, copy=True).div_(255).sub_(mean).div_(std)

    def denormalize(self, images: Tensor) -> Tensor:
        """The inverse of `normalize` for images (B, C, H, W), in [0, 1], for pictures."""
        return (images * self.std + self.mean).clamp(0, 1)

    def cut(self, images: Tensor) -> tuple[Tensor, Grid]:
        """(B, C, H, W) -> (B, N, C·P·P) and the grid (h, w); with patch_size null the images as they are."""
        if self.patch_size is None:
            return images, (1, 1)
        h, w = images.shape[-2] // self.patch_size, images.shape[-1] // self.patch_size
        return patchify(images, self.patch_size), (h, w)
