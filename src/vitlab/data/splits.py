"""Splits of one pool: stratified, disjoint, and the same on every machine."""

import numpy as np

from vitlab.data.source import Pool
from vitlab.data.sources.split_names import SPLITS
from vitlab.errors import DataError

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

    targets (n,) -> sorted indices for each name in `fractions`, whose values add up to 1. Within a class of m
    members, split k ends at round(m · (f₁ + … + fₖ)). numpy's RandomState gives the same numbers everywhere, for ever
    (its stream is frozen, NEP 19).
    """
    random = np.random.RandomState(SPLIT_SEED)
    ends = np.cumsum(list(fractions.values()))
    if abs(ends[-1] - 1) > 1e-9 or min(fractions.values()) < 0:
        raise ValueError(f"the fractions {fractions} of a split are not shares that add up to 1")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in fractions}
    for label in np.unique(targets):
        members = random.permutation(np.flatnonzero(targets == label))
        cuts = np.round(len(members) * ends[:-1]).astype(int)
        for name, part in zip(fractions, np.split(members, cuts), strict=True):
            parts[name].append(part)
    return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}
