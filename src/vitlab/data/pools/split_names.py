"""Check which splits a data set has, and what it calls them."""

from vitlab.errors import ConfigError

SPLITS = ("train", "val", "test")


def check_splits(splits: dict[str, str | None], key: str = "splits") -> dict[str, str]:
    """Give the data set's own name for each split that it has; `key` is where these stand in data.source. Raises
    ConfigError for an unknown split and for a missing train."""
    for split in splits:
        if split not in SPLITS:
            raise ConfigError(f"data.source.{key} has the key {split}; the keys are {', '.join(SPLITS)}")
    named = {split: name for split, name in splits.items() if name is not None}
    if "train" not in named:
        raise ConfigError(f"data.source.{key}.train is missing; set it to the training images")
    return named
