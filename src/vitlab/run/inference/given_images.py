"""Turn images as Python users have them (files, Pillow's, arrays, tensors) into what the model of a run takes.

B batch, C channels, H W image height and width
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.data import ImageDataModule
from vitlab.data.batches.batch import Sample, View, collate
from vitlab.data.images.decoding import DAMAGE, MODES, convert_mode
from vitlab.data.loading.dataset import crop_for_evaluation
from vitlab.data.order.sampler import Key
from vitlab.data.pools.file_content import content
from vitlab.data.pools.pool import Stored
from vitlab.data.sources.named_files import find_images
from vitlab.errors import DataError, format_error


def list_images(images: Any) -> list[Any]:
    """List the images one by one: paths of files, Pillow's images, arrays (H, W) or (H, W, C), tensors (H, W) or (C, H,
    W). A text may name a folder or be a pattern, and a batch has one dimension more. Raises DataError."""
    found = list(iterate_images(images))
    if not found:
        raise DataError("the list of images is empty; give at least one image")
    return found


def iterate_images(images: Any) -> Iterator[Any]:
    if isinstance(images, str | Path):
        yield from find_images(str(images))
    elif isinstance(images, Image.Image):
        yield images
    elif isinstance(images, np.ndarray | Tensor):
        if images.ndim not in (2, 3, 4):
            raise DataError(f"{describe_image(images)} has {images.ndim} dimension(s): an image has 2 or 3, a batch 4")
        yield from images if images.ndim == 4 else [images]
    elif isinstance(images, Iterable) and not isinstance(images, bytes | dict):
        for image in images:
            yield from iterate_images(image)
    else:
        raise DataError(
            f"a {type(images).__name__} is not an image; give the name of a file or folder, a Pillow image, an array "
            "(H, W, C), a tensor (C, H, W), or a list of them"
        )


class Read(NamedTuple):
    """The images of a batch of files: the places of the files, the pixels of those that could be read, stacked where
    they are of one size, and for the others, by their place, the reason."""

    places: list[int]
    pixels: Tensor | list[Tensor]
    reasons: dict[int, str]


class GivenFiles(Dataset[Read]):
    """Files as the workers of a `Loader` read them, batch by batch."""

    def __init__(self, names: Sequence[str], datamodule: ImageDataModule):
        self.names = names
        self.datamodule = datamodule

    def __getitems__(self, keys: list[Key]) -> Read:
        pixels, reasons = [], {}
        for key in keys:
            try:
                pixels.append(load_pixels(Path(self.names[key.index]), self.datamodule))
            except DataError as error:
                reasons[key.index] = str(error)
        alike = len({image.shape for image in pixels}) == 1
        return Read([key.index for key in keys], torch.stack(pixels) if alike else pixels, reasons)


def prepare_images(images: Iterable[Tensor], datamodule: ImageDataModule, device: torch.device) -> View:
    """Images, each uint8 (C, H, W) as `pixels_of` gives it, normalised, and cut into patches where the model takes
    these."""
    samples = [Sample((image,), place) for place, image in enumerate(images)]
    batch = collate(samples, None, datamodule.images.eval_crop.find_mixed_patch_size())
    view: View = datamodule.preprocessing.finish_batch(datamodule.transfer_batch_to_device(batch, device, 0)).view
    return view


def load_pixels(image: Any, datamodule: ImageDataModule) -> Tensor:
    """Cut out of one image what the model is evaluated on: uint8 (C, H, W). Raises DataError."""
    mode = datamodule.images.mode or MODES.get(datamodule.in_chans)
    try:
        pixels = crop_for_evaluation(load_stored(image, mode), datamodule.images.eval_crop, mode)
    except DAMAGE as error:
        raise DataError(f"cannot read {describe_image(image)}: {format_error(error)}") from error
    if len(pixels) != datamodule.in_chans:
        raise DataError(
            f"{describe_image(image)} has {len(pixels)} channel(s), but the model takes {datamodule.in_chans}"
        )
    return pixels


def load_stored(image: Any, mode: str | None) -> Stored:
    """Give the content of a file, or pixels (H, W) or (H, W, C) in uint8. Raises what DAMAGE lists."""
    if isinstance(image, Path):
        return content(image)
    if isinstance(image, Image.Image):
        return np.asarray(convert_mode(ImageOps.exif_transpose(image), mode))
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else image
    if isinstance(image, Tensor) and array.ndim == 3:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] not in MODES and array.shape[0] in MODES:
        raise ValueError("an array is (H, W) or (H, W, C), a tensor (H, W) or (C, H, W)")
    return convert_to_uint8(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def convert_to_uint8(array: np.ndarray) -> np.ndarray:
    """Convert pixels to uint8, from uint8 or floats from 0 to 1. Raises ValueError."""
    if array.size == 0:
        raise ValueError("it has no pixels")
    if array.dtype == np.uint8:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"pixels of {array.dtype}; give uint8, or floats from 0 to 1")
    if not (array.min() >= 0 and array.max() <= 1):  # NaN is neither
        raise ValueError(
            f"pixels from {array.min():.3g} to {array.max():.3g}; give uint8, or floats from 0 to 1, not normalised"
        )
    pixels: np.ndarray = np.rint(array * 255).astype(np.uint8)
    return pixels


def describe_image(image: Any) -> str:
    """Name an image in a sentence."""
    shape = f" {tuple(image.shape)}" if hasattr(image, "shape") else ""
    return str(image) if isinstance(image, Path) else f"{type(image).__name__}{shape}"
