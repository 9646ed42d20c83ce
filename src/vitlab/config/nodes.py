"""Handle nodes of a config, and read the references in them: ${optimizer.lr}, ${oc.env:HOME}."""

import functools
import re
from collections.abc import Container, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, InterpolationToMissingValueError
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from vitlab.config.annotations import dotted
from vitlab.config.refusals import first_line
from vitlab.errors import ConfigError

REFERENCE = re.compile(r"(\\*)\$\{")


@functools.cache
def called(text: str) -> tuple[str, ...]:
    """List the resolvers that a text calls, nested ones too, by OmegaConf's own grammar. A name made by another
    reference is given as it is written."""
    return tuple(resolvers(parse(text))) if "${" in text else ()


def resolvers(tree: Any) -> Iterator[str]:
    if isinstance(tree, OmegaConfGrammarParser.InterpolationResolverContext):
        yield tree.resolverName().getText()
    for child in getattr(tree, "children", None) or ():
        yield from resolvers(child)


def literal(value: Any) -> Any:
    """Escape plain values for a new config: texts that look like a reference were resolved once, and must not be
    again."""
    if isinstance(value, dict):
        return {name: literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return REFERENCE.sub(lambda mark: rf"{mark[1] * 2}\${{", value) if isinstance(value, str) else value


def check_references(node: DictConfig, key: str = "", *, deep: bool) -> None:
    """Raise ConfigError for a value that refers to what is not there, or to itself; `deep` looks into all groups."""
    written = OmegaConf.to_container(node, resolve=False)
    assert isinstance(written, dict)
    for name, raw in written.items():
        place = dotted(key, name)
        if isinstance(raw, str) and raw != "???":
            try:
                node[name]
            except InterpolationToMissingValueError:
                raise  # which names the key that has no value
            except InterpolationResolutionError as error:
                raise ConfigError(f"{place} is {raw}, and that leads nowhere: {first_line(error)}") from error
        elif deep and isinstance(raw, dict):
            check_references(node[name], place, deep=True)


def check_values(cfg: DictConfig) -> None:
    """Raise ConfigError for a key without a value, and for a reference that leads nowhere."""
    check_references(cfg, deep=True)
    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(f"{missing[0]} has no value; set {missing[0]}=...")


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
