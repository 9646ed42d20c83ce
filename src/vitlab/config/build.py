"""Build objects from config nodes: the one place where a `_target_` is called."""

import functools
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf

from vitlab.config.annotations import check_annotations, fractions
from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.nodes import literal, node_of
from vitlab.config.refusals import first_line
from vitlab.errors import ConfigError, VitlabError
from vitlab.out_of_memory import ran_out

WITHIN = re.compile(r"\nfull_key: (.+)")  # where in a node Hydra met it


def build(node: DictConfig, key: str, **runtime: Any) -> Any:
    """Call the node's `_target_` with its values and the `runtime` objects, which no YAML can hold.

    Only targets that stand in a YAML of conf/ or experiments/ are called, whatever the config's origin. Raises
    ConfigError, naming `key`, when a value is refused.
    """
    if "_target_" not in node:
        raise ConfigError(f"{key} has no _target_, which names what is to be built")
    for place, part in parts(node, key):
        if part["_target_"] not in allowed_targets():
            raise ConfigError(
                f"{place}: _target_ {part['_target_']} stands in no YAML of conf/ or experiments/; add one that has it"
            )
        check_annotations(called(part["_target_"], place), part, place)
    try:
        node = node_of(literal(plain(node)))  # a copy: Hydra resolves references in place, and then once more
        for place, part in parts(node, key):
            part.update(fractions(called(part["_target_"], place), part))
        if runtime:  # bound here, not by Hydra, which would look for targets in them
            return instantiate(node, _convert_="all", _partial_=True)(**runtime)
        return instantiate(node, _convert_="all")
    except Exception as error:  # whatever a constructor of ours or another library makes of a value
        raise refusal_of(error, key) from error


def refusal_of(error: Exception, key: str) -> VitlabError:
    """Turn what a constructor raised into a sentence that names the key of its node."""
    cause = (error.__cause__ or error) if isinstance(error, InstantiationException) else error
    if isinstance(cause, VitlabError):
        return cause
    if inner := WITHIN.search(str(error)) if cause is not error else None:
        key = inner[1] if inner[1].startswith(key) else f"{key}.{inner[1]}"
    if ran_out(cause) or "overflowed" in str(cause):  # a size that overflows
        return ConfigError(f"{key} needs more memory than this machine has: {first_line(cause)}")
    return ConfigError(f"{key}: {first_line(cause)}")  # Lightning goes on with tracebacks of its own


def called(name: str, place: str) -> Any:
    """Import the object of that name. Raises ConfigError where a package that it needs is not installed."""
    try:
        return get_object(name)
    except ImportError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ModuleNotFoundError):
            cause = cause.__cause__
        package = (cause.name or "").split(".")[0] if cause else ""
        if package and find_spec(package) is None:
            raise ConfigError(f"{place}: {name} needs the package {package}; pip install {package}") from error
        raise ConfigError(f"{place}: there is no {name}; it is misspelt, or its package too old") from error


def parts(node: Any, key: str) -> Iterator[tuple[str, DictConfig]]:
    """Yield every node with a `_target_`, and its key."""
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield key, node
        for name in node:
            yield from parts(node[name], f"{key}.{name!s}")
    elif isinstance(node, ListConfig):
        for number, item in enumerate(node):
            yield from parts(item, f"{key}[{number}]")


@functools.cache
def allowed_targets() -> frozenset[str]:
    """Collect the `_target_`s that stand in the YAMLs of this project."""
    files = [*CONF.rglob("*.yaml"), *(EXPERIMENTS / "recipe").glob("*.yaml"), *(EXPERIMENTS / "study").glob("*.yaml")]
    return frozenset(
        target for file in files for target in re.findall(r"_target_: *([\w.]+)", file.read_text(encoding="utf-8"))
    )


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Give a config as plain types, everything resolved."""
    container = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}
