"""Make, merge and cut nodes of a config; nothing is changed in place."""

from collections.abc import Container
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.config.references import literal


def node_of(values: dict[str, Any]) -> DictConfig:
    """Make a node of plain types; text that looks like a reference stays text."""
    return OmegaConf.create(literal(values))


def merged(node: DictConfig, changes: Any) -> DictConfig:
    """Merge `changes` over a node, into a new one."""
    result = OmegaConf.merge(node, changes)
    assert isinstance(result, DictConfig)
    return result


def without(node: DictConfig, keys: Container[str]) -> DictConfig:
    """Copy a node without some keys."""
    return OmegaConf.masked_copy(node, [str(key) for key in node if key not in keys])
