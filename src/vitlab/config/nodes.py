"""Handle nodes of a config, and read the references in them: ${optimizer.lr}, ${oc.env:HOME}."""

import functools
import re
from collections.abc import Container, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from vitlab.config.refusals import explain_omegaconf_error
from vitlab.errors import ConfigError

REFERENCE = re.compile(r"(\\*)\$\{")


def resolve_config(cfg: DictConfig) -> dict[str, Any]:
    """Give a config as plain types, everything resolved."""
    container = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def resolve_value(value: Any) -> Any:
    """Give a value of a config as plain types, everything resolved."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def convert_unresolved(cfg: DictConfig) -> dict[str, Any]:
    """Give a config as plain types, its references as they are written."""
    container = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def check_values(cfg: DictConfig) -> None:
    """Raise ConfigError for a key without a value, and for a reference to what does not exist."""
    try:
        resolve_config(cfg)
    except OmegaConfBaseException as error:
        raise ConfigError(explain_omegaconf_error(error)) from error


def flatten(node: dict[Any, Any], key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values below a node of plain types by their full keys. A list is one value."""
    for name, value in node.items():
        place = f"{key}.{name}" if key else str(name)
        if isinstance(value, dict) and value:
            yield from flatten(value, place)
        else:
            yield place, value


def find_texts(value: Any) -> Iterator[str]:
    """Yield all texts in plain types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from find_texts(item)


@functools.cache
def list_resolvers(text: str) -> tuple[str, ...]:
    """List the resolvers that a text calls, nested ones too, by OmegaConf's own grammar. A name made by another
    reference is given as it is written."""
    return tuple(find_resolvers(parse(text))) if "${" in text else ()


def find_resolvers(tree: Any) -> Iterator[str]:
    if isinstance(tree, OmegaConfGrammarParser.InterpolationResolverContext):
        yield tree.resolverName().getText()
    for child in getattr(tree, "children", None) or ():
        yield from find_resolvers(child)


def escape_references(value: Any) -> Any:
    """Escape plain values for a new config: texts that look like a reference were resolved once, and must not be
    again."""
    if isinstance(value, dict):
        return {name: escape_references(item) for name, item in value.items()}
    if isinstance(value, list):
        return [escape_references(item) for item in value]
    return REFERENCE.sub(lambda mark: rf"{mark[1] * 2}\${{", value) if isinstance(value, str) else value


def make_node(values: dict[str, Any]) -> DictConfig:
    """Make a node of plain types; text that looks like a reference stays text."""
    node: DictConfig = OmegaConf.create(escape_references(values))
    return node


def merge_node(node: DictConfig, changes: Any) -> DictConfig:
    """Merge `changes` over a node, into a new one."""
    result = OmegaConf.merge(node, changes)
    assert isinstance(result, DictConfig)
    return result


def remove_keys(node: DictConfig, keys: Container[str]) -> DictConfig:
    """Copy a node without some keys."""
    return OmegaConf.masked_copy(node, [str(key) for key in node if key not in keys])
