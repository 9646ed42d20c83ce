"""Fill in the values that a config leaves open (null, auto) with those found in the data or measured on the machine."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.nodes import escape_references, resolve_config

OPEN_KEYS = {  # the config's key of each value that may be left open
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
OPEN = (None, "auto")  # what leaves a value to be found


def is_open(cfg: DictConfig, key: str) -> bool:
    """Whether the config has a key of `OPEN_KEYS` and leaves its value to be found."""
    parent, _, name = OPEN_KEYS[key].rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and name in node and node[name] in OPEN


def fill_in(cfg: DictConfig, values: dict[str, Any]) -> DictConfig:
    """Return a copy of the config with `values` where it leaves their keys open, and all of them under `found`, beside
    those that an earlier start of the run found."""
    filled = OmegaConf.create(OmegaConf.to_container(cfg))
    assert isinstance(filled, DictConfig)
    for key, value in escape_references(values).items():
        if key in OPEN_KEYS and is_open(filled, key):
            OmegaConf.update(filled, OPEN_KEYS[key], value)
    if values:
        filled.found = escape_references({**(resolve_config(cfg.found) if cfg.get("found") else {}), **values})
    return filled
