"""What the settings of a data set must be, each by itself and together; what is not is refused in a sentence."""

from collections.abc import Iterable

from PIL import Image

from vitlab.data.crops import Crop
from vitlab.data.resampling import BY_TORCH
from vitlab.errors import ConfigError

ON_BAD_IMAGE = ("error", "skip")


def one_of(key: str, value: str, names: Iterable[str]) -> None:
    if value not in names:
        raise ConfigError(f"data.{key} '{value}' is not one of: {', '.join(names)}")


def at_least(least: int, **values: float | None) -> None:
    """For values that are not null."""
    for key, value in values.items():
        if value is not None and value < least:
            raise ConfigError(f"data.{key} {value} is not at least {least}")


def check_fractions(val_fraction: float, test_fraction: float) -> None:
    """Shares of the training pool, of which something is left."""
    for key, fraction in {"val_fraction": val_fraction, "test_fraction": test_fraction}.items():
        if not 0 <= fraction < 1:
            raise ConfigError(f"data.{key} {fraction} is not in [0, 1)")
    if val_fraction + test_fraction >= 1:
        raise ConfigError(
            f"data.val_fraction {val_fraction} and data.test_fraction {test_fraction} leave nothing to train on"
        )


def check_channels(stored: int | None, image_mode: str | None, in_chans: int) -> None:
    """`stored`: channels of the source's images, None where they differ."""
    if image_mode is not None and image_mode not in Image.MODES:
        raise ConfigError(f"data.image_mode '{image_mode}' is not a mode of Pillow; use L, RGB or null")
    channels = stored if image_mode is None else Image.getmodebands(image_mode)
    if channels is not None and channels != in_chans:
        raise ConfigError(
            f"data.in_chans is {in_chans}, but the images have {channels} channel(s); set data.in_chans={channels}"
            ", or convert every image with data.image_mode=L (1 channel) or data.image_mode=RGB (3 channels)"
        )


def check_crop(key: str, crop: Crop, in_chans: int, patch_size: int | None) -> None:
    """It can resize so many channels, and cuts the model's patches where it cuts any."""
    if in_chans not in (1, 3, 4) and crop.interpolation not in BY_TORCH:
        raise ConfigError(f"crop.{key}.interpolation of {in_chans} channels is one of: {', '.join(BY_TORCH)}")
    own = crop.mixed_patch_size()
    if own is not None and own != patch_size:
        raise ConfigError(f"data.{key}_crop.patch_size is {own}, and the model's is {patch_size}")
