"""Finish a batch on the device: uint8 images become what the model takes.

B batch, C channels, H W image height and width, P patch_size, N patches
"""

import torch
from torch import Tensor, nn

from vitlab.data.batches.batch import Batch, RawBatch, View
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
                raise ValueError(
                    f"data.{key} has {len(values)} values, but data.in_chans is {in_chans}; give one value for each "
                    "channel"
                )
        if min(std) <= 0:
            raise ValueError(f"data.std {std} holds a value that is not above 0; give positive values")
        self.patch_size = patch_size
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def finish_batch(self, batch: RawBatch) -> Batch:
        """Turn what a worker has handed over into what a model takes."""
        self.to(batch.index.device)
        return Batch(tuple(self.finish_view(view) for view in batch.views), batch.target, batch.index)

    def finish_view(self, view: Tensor | View) -> View:
        if isinstance(view, View):
            return View(self.normalize_patches(view.inputs), view.grid)
        inputs, grid = self.cut(view)
        normalize = self.normalize if grid is None else self.normalize_patches
        return View(normalize(inputs), grid)

    def mix_batch(self, batch: RawBatch, shares: Tensor, mixing: Mixing, seed: int) -> Batch:
        """Finish a batch of one view, mixing its images and their `shares` (B, K) of classes in between."""
        self.to(batch.index.device)
        images, target = mixing(self.normalize(batch.view), shares, seed)
        return Batch((View(*self.cut(images)),), target, batch.index)

    def normalize(self, images: Tensor) -> Tensor:
        """Scale and normalise [0, 255] to float, (B, C, H, W)."""
        return images.to(torch.float32, copy=True).div_(255).sub_(self.mean).div_(self.std)

    def normalize_patches(self, patches: Tensor) -> Tensor:
        """Normalise patches (B, N, C·P·P), in which the values of a channel are consecutive."""
        size = patches.shape[-1] // self.mean.numel()
        mean, std = (value.flatten().repeat_interleave(size) for value in (self.mean, self.std))
        return patches.to(torch.float32, copy=True).div_(255).sub_(mean).div_(std)

    def denormalize(self, images: Tensor) -> Tensor:
        """Invert `normalize` for images (B, C, H, W), to [0, 1], for pictures."""
        return (images * self.std + self.mean).clamp(0, 1)

    def cut(self, images: Tensor) -> tuple[Tensor, Grid | None]:
        """Cut into patches: (B, C, H, W) -> (B, N, C·P·P) and the grid (h, w). With patch_size null, images stay, and
        the grid is None."""
        if self.patch_size is None:
            return images, None
        h, w = images.shape[-2] // self.patch_size, images.shape[-1] // self.patch_size
        return patchify(images, self.patch_size), (h, w)
