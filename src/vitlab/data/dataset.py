"""One split as a map-style data set: read, convert, transform, all on the CPU and in uint8."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import functional as F

from vitlab.counted import counted_seed, seeded_cpu
from vitlab.data.batch import Sample, Unreadable
from vitlab.data.source import Pool
from vitlab.errors import DataError

Transform = Callable[[Any], Any]
DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


def convert(image: Image.Image | Tensor, image_mode: str | None) -> Image.Image | Tensor:
    """Bring a PIL image upright (EXIF) and into `image_mode` (PIL's names: L, RGB …; null: as stored)."""
    if isinstance(image, Tensor):
        return image
    image = ImageOps.exif_transpose(image)
    return image if image_mode is None or image.mode == image_mode else image.convert(image_mode)


class ImageSplit(Dataset):
    """The samples `indices` of a pool. Item (epoch, i) -> Sample, or Unreadable for a file that cannot be decoded.

    The transform draws from torch's generator, which is seeded for each sample from (seed, epoch, i): the same sample
    in the same epoch is augmented the same way, in whichever worker or process.
    """

    def __init__(
        self, pool: Pool, indices: np.ndarray, *, image_mode: str | None, in_chans: int, transform: Transform, seed: int
    ):
        self.pool = pool
        self.indices = indices
        self.image_mode = image_mode
        self.in_chans = in_chans
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return len(self.indices)

    def with_transform(self, transform: Transform) -> "ImageSplit":
        """The same samples through another transform."""
        return ImageSplit(
            self.pool,
            self.indices,
            image_mode=self.image_mode,
            in_chans=self.in_chans,
            transform=transform,
            seed=self.seed,
        )

    def name(self, index: int) -> str:
        return self.pool.name(int(self.indices[index]))

    def __getitem__(self, key: tuple[int, int]) -> Sample | Unreadable:
        epoch, index = key
        position = int(self.indices[index])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                image = convert(self.pool.load(position), self.image_mode)
        except DAMAGE as error:
            return Unreadable(self.pool.name(position), str(error) or type(error).__name__)
        return Sample(self._transformed(image, epoch, index), int(self.pool.targets[position]), index)

    def _transformed(self, image: Image.Image | Tensor, epoch: int, index: int) -> Tensor:
        with seeded_cpu(counted_seed("augmentation", self.seed, epoch, index)):
            image = self.transform(image)
        tensor = image if isinstance(image, Tensor) else F.pil_to_tensor(image)
        if tensor.shape[0] != self.in_chans:
            raise DataError(
                f"{self.name(index)} has {tensor.shape[0]} channels, and data.in_chans is {self.in_chans}; "
                "set data.image_mode (L: 1 channel, RGB: 3) to convert every image"
            )
        return tensor
