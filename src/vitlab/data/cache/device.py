"""Hold a whole split on the device: batches are cut out of it there, and training reads and copies nothing.

n images of the split, B batch, C channels, S side of the stored images, h w height and width of a crop
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import roi_align

from vitlab.data.batches.batch import RawBatch, UnreadableImage, on_device
from vitlab.data.images.crop import Crops, make_whole_boxes
from vitlab.data.images.squares import WholeImage
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.order.sampler import Key
from vitlab.data.pools.pool import Pool
from vitlab.errors import ConfigError
from vitlab.out_of_memory import refuse_out_of_memory


class CropView(NamedTuple):
    """Which crops to cut out of images that lie on the device: their `size` (h, w), by how many pixels to move each
    down and to the right (B, 2), whether to flip it (B,), and its box (B, 4) in stored pixels, None where whole images
    are taken."""

    shifts: Tensor
    flips: Tensor
    boxes: Tensor | None
    size: tuple[int, int]


class CropBatch(NamedTuple):
    """A `RawBatch` without pixels, which says for each view which crops to cut."""

    views: tuple[CropView, ...]
    target: Any
    index: Tensor  # type: ignore[assignment]
    unreadable: tuple[UnreadableImage, ...] = ()

    def to(self, device: torch.device) -> "CropBatch":
        return on_device(self, device)


class CropsOnly(ImageSplit):
    """An ImageSplit whose batches say which crops to take, and hold no pixels. Raises ConfigError for a split that is
    transformed on the CPU, or whose images differ in size."""

    @classmethod
    def from_split(cls, split: ImageSplit) -> "CropsOnly":
        if split.transform is not None:
            raise ConfigError(
                "data.cache.kind=device crops, shifts, flips and mixes on the device, and transforms nothing else; set "
                "augmentation=none and data.images.train_transform=null, or data.cache.kind=decoded"
            )
        if split.crop.output_size() is None or split.pool.pixels is None:
            raise ConfigError(
                "data.cache.kind=device needs images of one size; with a token budget, use data.cache.kind=decoded"
            )
        return cls(
            split.pool,
            split.indices,
            image_mode=split.image_mode,
            in_chans=split.in_chans,
            crop=split.crop,
            transform=None,
            seed=split.seed,
        )

    @staticmethod
    def is_exact(split: ImageSplit) -> bool:
        """Whether its crops are whole stored images, which are the same wherever they are cut."""
        if not holds_pixels(split.pool, split.in_chans) or type(split.crop) is not WholeImage:
            return False
        assert split.pool.pixels is not None
        return split.crop.output_size() == split.pool.pixels.shape[1:3]

    def __getitems__(self, keys: Sequence[Key]) -> CropBatch:  # type: ignore[override]
        assert self.pool.pixels is not None
        S = self.pool.pixels.shape[1:3]
        reasons = {key.index: self.pool.unreadable.get(int(self.indices[key.index])) for key in keys}
        bad = tuple(UnreadableImage(self.name(index), why, index) for index, why in reasons.items() if why is not None)
        keys = [key for key in keys if reasons[key.index] is None]
        places = np.array([key.index for key in keys], dtype=int)
        sizes = np.array([self.pool.size(int(i)) or S for i in self.indices[places]])
        views = tuple(self.crop_view(crops, sizes) for _, crops in self.views(keys, sizes)) if keys else ()
        return CropBatch(views, self.collate_targets(places), torch.from_numpy(places), bad)

    def crop_view(self, crops: Crops, sizes: np.ndarray) -> CropView:
        """Give one view of images that had these `sizes` (B, 2) before they were stored."""
        assert self.pool.pixels is not None
        S = self.pool.pixels.shape[1:3]
        h, w = crops.sizes[0].tolist()
        boxes = None
        if (h, w) != S or (crops.boxes != make_whole_boxes(sizes)).any():
            boxes = torch.from_numpy(crops.boxes * np.tile(S[::-1] / sizes[:, ::-1], 2)).float()
        return CropView(torch.from_numpy(crops.shifts), torch.from_numpy(crops.flips), boxes, (h, w))


def holds_pixels(pool: Pool, in_chans: int) -> bool:
    """Whether a pool has pixels of one size in that many channels."""
    if pool.pixels is None:
        return False
    return in_chans == (pool.pixels.shape[3] if pool.pixels.ndim == 4 else 1)


class DeviceImages:
    """The images of splits on a device; each split is copied there when its first batch is asked for."""

    def __init__(self) -> None:
        self.images: dict[tuple[ImageSplit, torch.device], Tensor] = {}

    def cut(self, split: ImageSplit, batch: CropBatch) -> RawBatch:
        """Cut out what a batch of `CropsOnly` asks for."""
        key = (split, batch.index.device)
        if key not in self.images:
            self.images[key] = copy_to_device(batch.index.device, split)
        images = self.images[key][batch.index]  # (B, C, S, S)
        return RawBatch(tuple(cut_out(images, view) for view in batch.views), batch.target, batch.index)


def copy_to_device(device: torch.device, split: ImageSplit) -> Tensor:
    """Copy the images of a split to the device, uint8 (n, C, S, S)."""
    assert split.pool.pixels is not None
    size = len(split) * split.pool.pixels[0].nbytes / 10**9
    with refuse_out_of_memory(
        lambda: f"with {len(split):,} images of {size:.2f} GB on {device}; set data.cache.kind=decoded"
    ):
        images = torch.from_numpy(np.ascontiguousarray(split.pool.pixels[split.indices]))
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
        return images.contiguous().to(device)


def cut_out(images: Tensor, view: CropView) -> Tensor:
    """Cut a view out of the images of a batch (B, C, S, S). -> (B, C, h, w): in uint8 the very pixels that workers cut,
    or, where boxes are resized, float in [0, 255], each the mean of its bin (torchvision's roi_align)."""
    if view.boxes is not None:
        number = torch.arange(len(images), device=images.device, dtype=view.boxes.dtype)
        boxes = torch.cat([number[:, None], view.boxes], dim=1)
        images = roi_align(images.float(), boxes, view.size, aligned=True)
    for dim in (2, 3):
        images = shift_images(images, view.shifts[:, dim - 2], dim)
    return torch.where(view.flips[:, None, None, None] > 0, images.flip(-1), images)


def shift_images(images: Tensor, shift: Tensor, dim: int) -> Tensor:
    """Move each image (B, C, H, W) along a dimension by its own number of pixels (B,); zeros move in."""
    length = images.shape[dim]
    source = torch.arange(length, device=images.device) - shift[:, None]  # (B, length)
    shape = [len(images), 1, 1, 1]
    shape[dim] = length
    inside = ((source >= 0) & (source < length)).view(shape)
    return images.gather(dim, source.clamp(0, length - 1).view(shape).expand_as(images)) * inside
