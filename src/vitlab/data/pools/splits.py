"""Divide a pool into splits: disjoint, and the same on every machine."""

from collections.abc import Iterator

import numpy as np

from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.targets import Classes, OneClass, Targets
from vitlab.errors import ConfigError, DataError
from vitlab.ranges import Count, Rate
from vitlab.seeding import make_seed

SPLIT_SEED = 0  # fixed: a split does not change with the seed of a run


class Splits:
    """Splits that a source does not bring are carved from its training pool, `val_fraction` and `test_fraction` of it.
    `labels_per_class`: train on so many images of each class; None: on all. val and test stay whole.

    Raises ConfigError for fractions that leave nothing.
    """

    def __init__(self, *, val_fraction: Rate, test_fraction: Rate, labels_per_class: Count | None):
        if val_fraction + test_fraction >= 1:
            raise ConfigError(
                f"data.split.val_fraction {val_fraction} and data.split.test_fraction {test_fraction} leave nothing to "
                "train on"
            )
        self.fractions = val_fraction, test_fraction
        self.labels_per_class = labels_per_class

    def divide(self, pools: dict[str, Pool], seed: int, class_names: list[str]) -> dict[str, tuple[Pool, np.ndarray]]:
        """Each split's pool, and its places in it, few labels drawn by `seed`. Raises DataError for an empty split."""
        parts = divide(pools, *self.fractions)
        if self.labels_per_class is not None:
            pool, indices = parts["train"]
            parts["train"] = pool, choose_few(pool.targets, indices, self.labels_per_class, seed, class_names)
        return parts


class SplitsOfEnough(Splits):
    """Divides a pool like `Splits`, and keeps the splits of the source where there are too few samples to divide."""

    def divide(self, pools: dict[str, Pool], seed: int, class_names: list[str]) -> dict[str, tuple[Pool, np.ndarray]]:
        try:
            return super().divide(pools, seed, class_names)
        except DataError:
            if not all(map(len, pools.values())):
                raise
            return {split: (pool, np.arange(len(pool))) for split, pool in pools.items()}


def divide(pools: dict[str, Pool], val_fraction: float, test_fraction: float) -> dict[str, tuple[Pool, np.ndarray]]:
    """Each split's pool, and its places in it: a pool of its own, or what is carved for it from the training pool.
    Raises DataError for an empty one."""
    missing = {"val": val_fraction, "test": test_fraction}
    missing = {split: fraction for split, fraction in missing.items() if split not in pools}
    carved = carve(pools["train"].targets, {"train": 1 - sum(missing.values()), **missing})
    parts = {}
    for split in SPLITS:
        pool = pools["train"] if split in carved else pools[split]
        parts[split] = pool, carved.get(split, np.arange(len(pool)))
        if not len(parts[split][1]):
            raise DataError(remedy(split, pools["train"], missing))
    return parts


def remedy(empty: str, training: Pool, fractions: dict[str, float]) -> str:
    """Say that a split is empty, and with which fractions none would be. `fractions`: those of the splits that are
    carved from the training pool."""
    targets, things = training.targets, training.things
    none = f"the {empty} split holds no {things.removesuffix('s')}"
    if empty not in fractions and empty != "train":
        return f"{none}; see its {'folder' if things == 'images' else 'file'}"
    for tried in candidates(empty, fractions):
        parts = carve(targets, {"train": 1 - sum(tried.values()), **tried})
        if all(map(len, parts.values())):
            changed = {split: f for split, f in tried.items() if f != fractions[split]}
            words = " ".join(f"data.split.{split}_fraction={fraction:g}" for split, fraction in changed.items())
            return f"{none}; set {words}"
    names = ["train", *fractions]
    told = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    each = f", of each class at least {len(names)}" if isinstance(targets, Classes) else ""
    return f"{targets.num_images:,} {things} are too few for the splits {told}; add {things}{each}"


def candidates(empty: str, fractions: dict[str, float]) -> Iterator[dict[str, float]]:
    """Fractions to try instead: first other ones of the empty split alone, then of all."""
    steps = [round(0.05 * k, 2) for k in range(1, 20)]
    if empty in fractions:
        rest = 1 - sum(fractions.values()) + fractions[empty]
        yield from ({**fractions, empty: step} for step in steps if step < rest)
    yield from (dict.fromkeys(fractions, step) for step in steps if step * len(fractions) < 1)


def carve(targets: Targets, fractions: dict[str, float]) -> dict[str, np.ndarray]:
    """Divide a pool among splits as its targets say: sorted indices for each name in `fractions`, whose values add up
    to 1. numpy's RandomState gives the same numbers everywhere, for ever (its stream is frozen, NEP 19)."""
    if abs(sum(fractions.values()) - 1) > 1e-9 or min(fractions.values()) < 0:
        raise ValueError(f"the fractions {fractions} of a split are not shares that add up to 1")
    return targets.divide(fractions, np.random.RandomState(SPLIT_SEED))


def choose_few(
    targets: Targets, indices: np.ndarray, labels_per_class: int, seed: int, class_names: list[str]
) -> np.ndarray:
    """Draw that many of the images `indices` from each class, by `seed`: sorted indices. A smaller number draws some of
    those that a larger one draws. Raises ConfigError for several classes an image, and for a class with fewer images.
    """
    if not isinstance(targets, OneClass):
        raise ConfigError(
            f"data.split.labels_per_class needs images with one class each, but this data has images {targets.kind}; "
            "set it to null"
        )
    counts = targets[indices].counts(len(class_names))
    if counts.min() < labels_per_class:
        k = int(counts.argmin())
        raise ConfigError(
            f"data.split.labels_per_class is {labels_per_class}, and '{class_names[k]}' has {counts[k]} training "
            "image(s)"
        )
    shuffled = np.random.RandomState(make_seed("labels", seed) % 2**32).permutation(indices)
    grouped = shuffled[np.argsort(targets.values[shuffled], kind="stable")]  # class after class, each in random order
    begins = np.cumsum(counts) - counts
    return np.sort(grouped[(begins[:, None] + np.arange(labels_per_class)).ravel()])
