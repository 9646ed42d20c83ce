"""What null and auto in a config have come to mean: what was found in the data, which constructors need."""

import shlex
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

PLACES = {  # where what is found belongs
    **{key: f"data.{key}" for key in ("image_size", "in_chans", "num_classes", "mean", "std")},
    **{key: f"data.{key}" for key in ("vocab_size", "max_length", "input_vocab_size", "input_max_length")},
    "characters": "data.source.characters",
    "mode": "data.images.mode",
    "scale": "crop.train.scale",
    "interpolation": "crop.train.interpolation",
    "flip_rate": "crop.train.flip_rate",
    "global_batch_size": "global_batch_size",
}


def is_open(cfg: DictConfig, key: str) -> bool:
    """Whether the config has a key of `PLACES` and leaves its value to be found."""
    parent, _, name = PLACES[key].rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and name in node and node[name] in (None, "auto")


def with_found(cfg: DictConfig, found: Mapping[str, Any]) -> DictConfig:
    """Give a config in which what was left open has the values that were found, which stand in `found`."""
    if not found:
        return cfg
    with_them = OmegaConf.create(OmegaConf.to_container(cfg))
    assert isinstance(with_them, DictConfig)
    for key, value in found.items():
        if key in PLACES and is_open(with_them, key):
            OmegaConf.update(with_them, PLACES[key], value)
    with_them.found = dict(found)
    return with_them


def option(key: str, value: Any) -> str:
    """Give a key and its value as they are typed in a shell."""
    if isinstance(value, str) and not value.isidentifier():
        return shlex.quote(f"{key}={QuotedString(value, Quote.double).with_quotes()}")
    return f"{key}={value}".replace(", ", ",")
