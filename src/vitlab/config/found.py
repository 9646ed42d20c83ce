"""What null in a config has come to mean: what was found in the data, which constructors need."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf


def with_found(cfg: DictConfig, found: Mapping[str, Any]) -> DictConfig:
    """A new config in which keys of `data` that are null have the values that were found, which stand in `found`."""
    missing = {key: value for key, value in found.items() if cfg.data.get(key) is None}
    added = OmegaConf.create({"data": missing, "found": dict(found)}) if found else OmegaConf.create()
    with_them = OmegaConf.unsafe_merge(OmegaConf.create(OmegaConf.to_container(cfg)), added)
    assert isinstance(with_them, DictConfig)
    return with_them
