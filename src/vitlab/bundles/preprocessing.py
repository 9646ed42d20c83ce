"""How an image becomes what a model takes, in plain values for other programs.

B images, C channels, H W image height and width, S image_size
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.bundles.resizing import Resize
from vitlab.data import ImageDataModule
from vitlab.data.images.crop import Crop
from vitlab.data.images.decoding import DAMAGE, MODES, open_image
from vitlab.data.images.squares import CenterCrop, WholeImage
from vitlab.data.loading.dataset import crop_for_evaluation
from vitlab.data.order.sampler import Key
from vitlab.errors import ConfigError, DataError


@dataclass(frozen=True)
class Preprocessing:
    """Convert to Pillow's `mode`, resize the shorter side to `resize_size` and cut out the centre (None: squeeze the
    whole image) to `image_size`, divide by 255, subtract `mean` and divide by `std`."""

    mode: str | None
    channels: int
    image_size: int
    resize_size: int | None
    interpolation: str
    mean: list[float]
    std: list[float]

    @classmethod
    def read_data(cls, datamodule: ImageDataModule) -> "Preprocessing":
        """Read it off the data of a run. Raises ConfigError for images that keep their own shape."""
        crop: Crop = datamodule.images.eval_crop
        if not isinstance(crop, CenterCrop | WholeImage):
            raise ConfigError(
                f"an exported graph takes images of one size, but {type(crop).__name__} gives each its own; train with "
                "crop=whole or crop=random_resized"
            )
        return cls(
            mode=datamodule.images.mode or MODES.get(datamodule.in_chans),
            channels=datamodule.in_chans,
            image_size=crop.image_size,
            resize_size=crop.resize_size if isinstance(crop, CenterCrop) else None,
            interpolation=crop.interpolation,
            mean=datamodule.preprocessing.mean.flatten().tolist(),
            std=datamodule.preprocessing.std.flatten().tolist(),
        )

    def resize(self) -> Resize:
        return Resize(image_size=self.image_size, resize_size=self.resize_size, interpolation=self.interpolation)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class TestImage(NamedTuple):
    """An image of the test split: decoded (1, H, W, C), and as evaluation sees it (1, C, S, S), both uint8."""

    decoded: Tensor
    pixels: Tensor


class TestImages:
    """The images that can be read among the first `most` of a run's test split."""

    def __init__(self, datamodule: ImageDataModule, most: int):
        self.datamodule = datamodule
        datamodule.prepare_data()
        datamodule.setup()
        self.split = datamodule.get_evaluation_split("test")
        self.places = range(min(most, len(self.split)))

    def __iter__(self) -> Iterator[TestImage]:
        mode = self.datamodule.images.mode or MODES.get(self.datamodule.in_chans)
        for place in self.places:
            (stored,) = self.split.load_stored([Key(0, place)])
            try:
                if isinstance(stored, Exception):
                    raise stored
                pixels = crop_for_evaluation(stored, self.split.crop, mode)
                decoded = np.array(open_image(stored, mode).pixels()[0])
            except DAMAGE:
                continue
            decoded = decoded[..., None] if decoded.ndim == 2 else decoded
            yield TestImage(torch.from_numpy(decoded)[None], pixels[None])

    def stack(self, count: int) -> Tensor:
        """Normalise the first images, again from the first where there are too few. -> (count, C, S, S). Raises
        DataError where none can be read."""
        found = [image.pixels for image, _ in zip(self, range(count), strict=False)]
        if not found:
            raise DataError("no image of the test split can be read, so the export cannot be proved on one")
        pixels = torch.cat(found)
        return self.datamodule.preprocessing.normalize(pixels[torch.arange(count) % len(pixels)])
