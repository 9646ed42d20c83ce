"""What the settings of a data set must be, each by itself and together; what is not is refused in a sentence."""

import os
from collections.abc import Iterable, Mapping

from PIL import Image

from vitlab.data.batches.raw_batch import Sample
from vitlab.data.images.crops import Crop
from vitlab.data.images.resampling import BY_TORCH
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.pools.labels import stray
from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import Classes, OneClass, SeveralClasses
from vitlab.errors import ConfigError, DataError
from vitlab.machine import physical_memory

GIB = 2**30
BYTES_PER_NUMBER = 4
MOST_WORKERS, WORKERS_PER_CORE = 256, 16  # the larger holds: a run may have been configured for a larger machine
ON_BAD_IMAGE = ("error", "skip")


def one_of(key: str, value: str, names: Iterable[str]) -> None:
    if value not in names:
        raise ConfigError(f"data.{key} '{value}' is not one of: {', '.join(names)}")


def at_least(least: int, **values: float | None) -> None:
    """For values that are not null."""
    for key, value in values.items():
        if value is not None and value < least:
            raise ConfigError(f"data.{key} {value} is not at least {least}")


def check_machine(in_chans: int, image_size: int, num_workers: int | None) -> None:
    """Raise ConfigError for an image that memory has no room for, as bytes and as numbers, and for more processes than
    could ever help."""
    needed = in_chans * image_size**2 * (1 + BYTES_PER_NUMBER)
    if needed > physical_memory():
        raise ConfigError(
            f"data.image_size {image_size}: one image takes {needed / GIB:,.0f} GiB, and this machine has "
            f"{physical_memory() / GIB:,.0f} GiB of memory; make it smaller"
        )
    most = max(MOST_WORKERS, WORKERS_PER_CORE * (os.cpu_count() or 1))
    if num_workers is not None and num_workers > most:
        raise ConfigError(f"data.num_workers {num_workers} is more than {most} processes; null: one for each core")


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


def check_views(train_crop: Crop, eval_crop: Crop, mixed: bool) -> None:
    """Mixing takes one view of images of one size, and evaluation one view."""
    if train_crop.output_size() is None and mixed:
        raise ConfigError("images of different sizes cannot be mixed; set mixing=none with a token budget")
    if len(train_crop.views()) > 1 and mixed:
        raise ConfigError("several views of an image cannot be mixed; set mixing=none, or choose another crop=")
    if len(eval_crop.views()) > 1:
        raise ConfigError("data.eval_crop takes several views of an image, and is scored on one; choose another crop")


def check_order(class_balance: float, shuffle_window: int | None) -> None:
    if not 0 <= class_balance <= 1:
        raise ConfigError(f"data.class_balance {class_balance} is not in [0, 1]")
    if class_balance and shuffle_window is not None:
        raise ConfigError(
            f"data.class_balance {class_balance} draws from all shards, not from the few of data.shuffle_window "
            f"{shuffle_window}; set one of them to 0 or null"
        )


def check_targets(
    pools: Mapping[str, Pool], class_names: list[str], num_classes: int | None, class_balance: float
) -> None:
    """Images to train on, targets of one kind in every split, and as many classes as are configured."""
    if "train" not in pools or set(pools) - set(SPLITS):
        raise DataError(f"the data has the splits {', '.join(pools) or '(none)'}; it takes {', '.join(SPLITS)}")
    kinds = {split: pool.targets.kind for split, pool in pools.items()}
    if len(set(kinds.values())) > 1:
        told = "; ".join(f"{split} has images {kind}" for split, kind in kinds.items())
        raise DataError(f"the splits are labelled differently: {told}; give all of them one kind")
    given = pools["train"].targets
    if not isinstance(given, Classes) and num_classes is not None:
        raise ConfigError(
            f"data.num_classes is {num_classes}, and this data has images {given.kind}; set data.num_classes=null"
        )
    if class_balance and not isinstance(given, OneClass):
        raise ConfigError(
            f"data.class_balance {class_balance} is for images with one class each, and this data has images "
            f"{given.kind}; set it to 0"
        )
    if isinstance(given, Classes):
        check_classes(pools, class_names, num_classes)


def check_classes(pools: Mapping[str, Pool], class_names: list[str], num_classes: int | None) -> None:
    """Compare the names, and the labels, with the number of classes that is configured."""
    if num_classes is None or len(class_names) != num_classes:
        found, stated = len(class_names), "null" if num_classes is None else num_classes
        raise ConfigError(
            f"data.num_classes is {stated}, but the data has {found} classes; set data.num_classes={found}"
        )
    for split, pool in pools.items():
        values = pool.targets.values
        if isinstance(pool.targets, SeveralClasses) and values.shape[1] != num_classes:
            raise DataError(
                f"the targets of {split} are {values.shape}, and there are {num_classes} classes; give each a column"
            )
        if isinstance(pool.targets, OneClass) and (i := stray(values, num_classes)) is not None:
            raise DataError(
                f"{pool.name(i)} has the label {values[i]}, and the {num_classes} classes count from 0 to "
                f"{num_classes - 1}; correct it"
            )


def check_image_size(name: str, split: ImageSplit, image_size: int) -> None:
    """Read one image of a split: crop and transform must give image_size, in in_chans channels."""
    samples = (split[(0, i)] for i in range(len(split)))
    sample = next((s for s in samples if isinstance(s, Sample)), None)  # an unreadable one is met again later
    if sample is None:
        raise DataError(f"no image of the {name} split can be read")
    height, width = sample.views[0].shape[-2:]
    if split.crop.output_size() is not None and (height, width) != (image_size, image_size):
        raise ConfigError(
            f"the {name} crop and transform give images of {height}x{width}, and data.image_size is {image_size}"
        )
