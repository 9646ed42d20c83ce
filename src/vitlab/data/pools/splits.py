"""Splits of one pool: stratified, disjoint, and the same on every machine.

n images, K classes
"""

import numpy as np

from vitlab.data.pools.pool import Pool
from vitlab.data.pools.split_names import SPLITS
from vitlab.data.pools.targets import class_counts, classes_of
from vitlab.errors import ConfigError, DataError
from vitlab.seeding import counted_seed

SPLIT_SEED = 0  # fixed: a split does not change with the seed of a run


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
            key = f"data.{split}_fraction" if split in missing else "its folder"
            raise DataError(f"the {split} split holds no image; see {key}")
    return parts


def carve(targets: np.ndarray, fractions: dict[str, float]) -> dict[str, np.ndarray]:
    """Divide a pool among splits so that each class is divided in the given fractions.

    targets (n,) or (n, K) -> sorted indices for each name in `fractions`, whose values add up to 1. Within a class of m
    members, split k ends at round(m · (f₁ + … + fₖ)). numpy's RandomState gives the same numbers everywhere, for ever
    (its stream is frozen, NEP 19).
    """
    random = np.random.RandomState(SPLIT_SEED)
    ends = np.cumsum(list(fractions.values()))
    if abs(ends[-1] - 1) > 1e-9 or min(fractions.values()) < 0:
        raise ValueError(f"the fractions {fractions} of a split are not shares that add up to 1")
    if targets.ndim == 2:
        chosen = dealt_out(targets, np.array(list(fractions.values())), random)
        return {name: np.flatnonzero(chosen == split) for split, name in enumerate(fractions)}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in fractions}
    for label in np.unique(targets):
        members = random.permutation(np.flatnonzero(targets == label))
        cuts = np.round(len(members) * ends[:-1]).astype(int)
        for name, part in zip(fractions, np.split(members, cuts), strict=True):
            parts[name].append(part)
    return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}


def dealt_out(targets: np.ndarray, fractions: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Which split each image goes to, (n,), where it may have several classes: iterative stratification (Sechidis et
    al., 2011, doi:10.1007/978-3-642-23808-6_10).

    targets (n, K), one fraction for each split. The class that the fewest images wait for comes first, each of its
    images, in random order, goes to the split that lacks that class most, of these to the one that lacks images most,
    then to the first. Images without a class go last, to the split that lacks images most.
    """
    splits = np.flatnonzero(fractions > 0).tolist()
    chosen = np.full(len(targets), splits[0])
    if len(splits) == 1:
        return chosen
    waiting = class_counts(targets, targets.shape[1])
    lack = np.outer(waiting, fractions).tolist()  # (K, splits)
    room = (len(targets) * fractions).tolist()

    def deal(i: int, wanted: list[float]) -> None:
        split = max(splits, key=lambda s: (round(wanted[s], 6), round(room[s], 6), -s))
        chosen[i] = split
        room[split] -= 1
        for k in classes_of(targets[i]):
            lack[k][split] -= 1

    left = random.permutation(len(targets))
    while waiting.any():
        label = int(np.where(waiting > 0, waiting, len(targets) + 1).argmin())
        has_it = targets[left, label] > 0
        for i in left[has_it].tolist():
            deal(i, lack[label])
        waiting = waiting - class_counts(targets[left[has_it]], len(waiting))
        left = left[~has_it]
    for i in left.tolist():
        deal(i, room)
    return chosen


def few_of_each(
    targets: np.ndarray, indices: np.ndarray, labels_per_class: int, seed: int, class_names: list[str]
) -> np.ndarray:
    """So many of the images `indices` of each class, drawn by `seed`: sorted indices; a smaller number draws some of
    those that a larger one draws. Raises ConfigError for several classes an image, and for a class with fewer images.
    """
    if targets.ndim == 2:
        raise ConfigError(
            "data.labels_per_class counts images of one class each, and these may have several; set it to null"
        )
    counts = class_counts(targets[indices], len(class_names))
    if counts.min() < labels_per_class:
        k = int(counts.argmin())
        raise ConfigError(
            f"data.labels_per_class is {labels_per_class}, and '{class_names[k]}' has {counts[k]} training image(s)"
        )
    shuffled = np.random.RandomState(counted_seed("labels", seed) % 2**32).permutation(indices)
    grouped = shuffled[np.argsort(targets[shuffled], kind="stable")]  # class after class, each in random order
    begins = np.cumsum(counts) - counts
    return np.sort(grouped[(begins[:, None] + np.arange(labels_per_class)).ravel()])
