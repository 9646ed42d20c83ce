"""What null and auto in a config have come to mean: what was found in the data, or measured of the machine."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.nodes import literal

PLACES = {  # where what is found belongs
    **{key: f"data.{key}" for key in ("image_size", "in_chans", "num_classes", "mean", "std")},
    **{key: f"data.{key}" for key in ("vocab_size", "max_length", "input_vocab_size", "input_max_length")},
    "characters": "data.source.characters",
    "header": "data.source.header",
    "input_vocabulary": "data.source.input.vocabulary",
    "vocabulary": "data.source.target.vocabulary",
    "mode": "data.images.mode",
    "scale": "crop.train.scale",
    "interpolation": "crop.train.interpolation",
    "flip_rate": "crop.train.flip_rate",
    "global_batch_size": "global_batch_size",
    "precision": "trainer.precision",
}
OPEN = (None, "auto")  # values that are left to be found


def is_open(cfg: DictConfig, key: str) -> bool:
    """Whether the config has a key of `PLACES` and leaves its value to be found."""
    parent, _, name = PLACES[key].rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and name in node and node[name] in OPEN


def with_found(cfg: DictConfig, found: Mapping[str, Any]) -> DictConfig:
    """Give a config in which what was left open has the values that were found, which stand in `found`."""
    if not found:
        return cfg
    with_them = OmegaConf.create(OmegaConf.to_container(cfg))
    assert isinstance(with_them, DictConfig)
    values = literal(dict(found))
    for key, value in values.items():
        if key in PLACES and is_open(with_them, key):
            OmegaConf.update(with_them, PLACES[key], value)
    with_them.found = values
    return with_them
