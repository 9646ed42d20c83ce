"""Name a sample and its time."""

from typing import NamedTuple


class Key(NamedTuple):
    """All that the augmentation of a sample depends on, beside the seed. `view` tells repetitions of an image in one
    epoch apart; `image_size` is that of the crop, 0: the crop's own.
    """

    epoch: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which a key has no use for
    view: int = 0
    image_size: int = 0
