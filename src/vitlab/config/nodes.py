"""The nodes of a config, for rooms that need not know whose they are: OmegaConf's."""

from collections.abc import Container
from typing import Any

from omegaconf import DictConfig as Node
from omegaconf import OmegaConf

from vitlab.config.references import literal

__all__ = ["Node", "merged", "node_of", "without"]


def node_of(values: dict[str, Any]) -> Node:
    """Make a node of plain types, whose texts stand for themselves."""
    return OmegaConf.create(literal(values))


def merged(node: Node, changes: Any) -> Node:
    """Lay `changes` over a node; both stay what they are."""
    result = OmegaConf.merge(node, changes)
    assert isinstance(result, Node)
    return result


def without(node: Node, keys: Container[str]) -> Node:
    """Leave out some keys."""
    return OmegaConf.masked_copy(node, [str(key) for key in node if key not in keys])
