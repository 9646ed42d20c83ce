"""Say how a run sees images: in which colours, which part, with which changes.

C channels, H W image height and width
"""

from collections.abc import Callable
from typing import Any

from PIL import Image
from torchvision.transforms import v2

from vitlab.data.images.augmentation import check_augmentation
from vitlab.data.images.crop import Crop
from vitlab.data.images.resampling import BY_TORCH
from vitlab.errors import ConfigError

Transform = Callable[[Any], Any]


class Images:
    """A crop takes part of an image and brings it to image_size: `train_crop` in training, which may take several
    views, `eval_crop` in evaluation, one. `train_transform` changes training images after the crop, as PIL images in
    `mode` (PIL's names; null: as stored), or as uint8 tensors where PIL has no such image.

    Raises ConfigError for another mode, and for several views in evaluation.
    """

    def __init__(self, *, mode: str | None, train_crop: Crop, eval_crop: Crop, train_transform: Transform | None):
        if mode is not None and mode not in Image.MODES:
            raise ConfigError(f"data.images.mode '{mode}' is not a mode of Pillow; use L, RGB or null")
        if len(eval_crop.views()) > 1:
            raise ConfigError(
                "data.images.eval_crop gives several views of an image, but evaluation needs one; choose another crop"
            )
        self.mode = mode
        self.train_crop = train_crop
        self.eval_crop = eval_crop
        self.train_transform = train_transform

    def check(self, stored: int | None, in_chans: int, patch_size: int | None) -> None:
        """Raise ConfigError unless images come out in `in_chans` channels from what is `stored` (None: files may
        differ), and in the model's patches where a crop cuts any."""
        channels = stored if self.mode is None else Image.getmodebands(self.mode)
        if channels is not None and channels != in_chans:
            raise ConfigError(
                f"data.in_chans is {in_chans}, but the images have {channels} channel(s); set data.in_chans={channels}"
                ", or convert every image with data.images.mode=L (1 channel) or data.images.mode=RGB (3 channels)"
            )
        for key, crop in {"train": self.train_crop, "eval": self.eval_crop}.items():
            if in_chans not in (1, 3, 4) and crop.interpolation not in BY_TORCH:
                raise ConfigError(f"crop.{key}.interpolation of {in_chans} channels is one of: {', '.join(BY_TORCH)}")
            own = crop.find_mixed_patch_size()
            if own is not None and own != patch_size:
                raise ConfigError(
                    f"crop.{key}.patch_size is {own}, but the model's patch_size is {patch_size}; make them equal"
                )
        if self.train_transform is not None:
            check_augmentation("data.images.train_transform", self.train_transform, in_chans)

    def transform(self, augmentation: Transform | None) -> Transform | None:
        """Compose what is done to training images after the crop; None: nothing."""
        transforms = [one for one in (self.train_transform, augmentation) if one is not None]
        return v2.Compose(transforms) if transforms else None

    @property
    def mixed_sizes(self) -> bool:
        """Whether a crop leaves images of different sizes in a batch."""
        return None in (self.train_crop.output_size(), self.eval_crop.output_size())

    @property
    def num_views(self) -> int:
        """Count the views of an image in a training batch."""
        return len(self.train_crop.views())
