"""Handle the nodes of a config for rooms that do not import OmegaConf."""

from collections.abc import Container
from typing import Any

from omegaconf import DictConfig as Node
from omegaconf import OmegaConf

from vitlab.config.references import literal

__all__ = ["Node", "merged", "node_of", "without"]


def node_of(values: dict[str, Any]) -> Node:
    """Make a node of plain types; text that looks like a reference stays text."""
    return OmegaConf.create(literal(values))


def merged(node: Node, changes: Any) -> Node:
    """Merge `changes` over a node, into a new one."""
    result = OmegaConf.merge(node, changes)
    assert isinstance(result, Node)
    return result


def without(node: Node, keys: Container[str]) -> Node:
    """Copy a node without some keys."""
    return OmegaConf.masked_copy(node, [str(key) for key in node if key not in keys])
