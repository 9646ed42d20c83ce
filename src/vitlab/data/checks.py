"""Check the settings of a data set, each by itself and together; refuse in a sentence what cannot be."""

from collections.abc import Iterable, Mapping

from vitlab.data.batches.batch import Sample
from vitlab.data.images.images import Images
from vitlab.data.loading.dataset import ImageSplit
from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import Classes, OneClass, SeveralClasses, Targets, Texts, find_stray
from vitlab.errors import ConfigError, DataError
from vitlab.machine import physical_memory

GIB = 2**30
BYTES_PER_NUMBER = 4


def check_memory(in_chans: int, image_size: int) -> None:
    """Raise ConfigError for an image that memory has no room for, as bytes and as numbers."""
    needed = in_chans * image_size**2 * (1 + BYTES_PER_NUMBER)
    if needed > physical_memory():
        raise ConfigError(
            f"data.image_size {image_size}: one image needs {needed / GIB:,.0f} GiB, and this machine has "
            f"{physical_memory() / GIB:,.0f} GiB of memory; make it smaller"
        )


def check_mixing(images: Images) -> None:
    """Raise ConfigError for mixing of several views, or of images that differ in size."""
    if images.train_crop.output_size() is None:
        raise ConfigError("images of different sizes cannot be mixed; set mixing=none with a token budget")
    if images.num_views > 1:
        raise ConfigError("several views of an image cannot be mixed; set mixing=none, or choose another crop=")


def check_targets(
    pools: Mapping[str, Pool], class_names: list[str], num_classes: int | None, class_balance: float
) -> None:
    """Raise DataError or ConfigError unless there are images to train on, targets of one kind in every split, and as
    many classes as are configured."""
    if "train" not in pools or set(pools) - set(SPLITS):
        raise DataError(f"the data has the splits {', '.join(pools) or '(none)'}; it may have only {', '.join(SPLITS)}")
    kinds = {split: pool.targets.kind for split, pool in pools.items()}
    if len(set(kinds.values())) > 1:
        told = "; ".join(f"{split} has images {kind}" for split, kind in kinds.items())
        raise DataError(f"the splits are labelled differently: {told}; give all of them one kind")
    given = pools["train"].targets
    if not isinstance(given, Classes) and num_classes is not None:
        raise ConfigError(
            f"data.num_classes is {num_classes}, but this data has images {given.kind}; set data.num_classes=null"
        )
    if class_balance and not isinstance(given, OneClass):
        raise ConfigError(
            f"data.order.class_balance {class_balance} needs images with one class each, but this data has images "
            f"{given.kind}; set it to 0"
        )
    if isinstance(given, Classes):
        check_classes(pools, class_names, num_classes)


def check_classes(pools: Mapping[str, Pool], class_names: list[str], num_classes: int | None) -> None:
    """Compare the names with the number of classes that is configured, None: whatever is there; and the labels."""
    found = len(class_names)
    if num_classes is None:
        num_classes = found
    if found != num_classes:
        raise ConfigError(
            f"data.num_classes is {num_classes}, but the data has {found} classes; set data.num_classes={found}"
        )
    for split, pool in pools.items():
        values = pool.targets.values
        if isinstance(pool.targets, SeveralClasses) and values.shape[1] != num_classes:
            raise DataError(
                f"the targets of {split} are {values.shape}, and there are {num_classes} classes; give one column for "
                "each class"
            )
        if isinstance(pool.targets, OneClass) and (i := find_stray(values, num_classes)) is not None:
            raise DataError(
                f"{pool.name(i)} has the label {values[i]}, but {num_classes} classes have labels from 0 to "
                f"{num_classes - 1}; correct it"
            )


def find_longest_text(targets: Iterable[Targets], max_length: int | None, key: str) -> int:
    """The most tokens that a text has, its end among them. Raises DataError, which names it, for one with more than
    `max_length`, which stands at the `key`, and for a character that the vocabulary does not know."""
    longest, most = "", 0
    for texts in targets:
        assert isinstance(texts, Texts)
        assert texts.vocabulary is not None
        for text in dict.fromkeys(texts.values):
            if (length := len(texts.vocabulary.encode(text))) > most:
                longest, most = text, length
    if max_length is not None and most > max_length:
        raise DataError(
            f"the text '{longest}' has {most} tokens with its end token, but {key} is {max_length}; shorten it, or "
            f"set {key}={most}"
        )
    return most


def check_image_size(name: str, split: ImageSplit, image_size: int) -> None:
    """Read one image of a split, and check that crop and transform give image_size in in_chans channels."""
    samples = (split[(0, i)] for i in range(len(split)))
    sample = next((s for s in samples if isinstance(s, Sample)), None)  # an unreadable one is met again later
    if sample is None:
        raise DataError(f"no image of the {name} split can be read, the first is {split[(0, 0)]}")
    height, width = sample.views[0].shape[-2:]
    if split.crop.output_size() is not None and (height, width) != (image_size, image_size):
        raise ConfigError(
            f"the {name} crop and transform give images of {height}x{width}, but data.image_size is {image_size}; make "
            "them equal"
        )
