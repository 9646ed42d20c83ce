"""From config nodes to objects: the one place where a `_target_` is called."""

import functools
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from vitlab.errors import ConfigError, VitlabError
from vitlab.home import CONF, EXPERIMENTS
from vitlab.run.annotations import check_annotations

ADDED: dict[str, dict[str, Any]] = {  # keys that constructors did not always take
    "vitlab.models.VisionTransformer": {"drop_path_shape": "linear"},
    "vitlab.models.DistilledVisionTransformer": {"drop_path_shape": "linear"},
    "vitlab.data.Folder": {"allow_outside": True},
    "vitlab.data.ImageNet": {"allow_outside": True},
    "vitlab.data.Listing": {"allow_outside": True, "allow_two_labels": True},
}
RESOLVER_CALL = re.compile(r"\$\{(?!better:)[^${}]*:")  # better: which way a metric is better, and nothing else


def build(node: DictConfig, key: str, **runtime: Any) -> Any:
    """Call the node's `_target_` with its values and the `runtime` objects, which no YAML can hold.

    Only targets that stand in a YAML of conf/ or experiments/ are called, whatever the config's origin. Raises
    ConfigError, naming `key`, when a value is refused.
    """
    for place, part in parts(node, key):
        if part["_target_"] not in allowed_targets():
            raise ConfigError(
                f"{place}: _target_ {part['_target_']} stands in no YAML of conf/ or experiments/; add one that has it"
            )
        check_annotations(called(part["_target_"], place), part, place)
    try:
        if runtime:  # bound here, not by Hydra, which would look for targets in them
            return instantiate(node, _convert_="all", _partial_=True)(**runtime)
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, VitlabError):
            raise cause from None
        reason = str(cause) if cause is not None else str(error).split("\n")[0]
        raise ConfigError(f"{key}: {reason}") from error
    except (ValueError, TypeError, MisconfigurationException) as error:
        if isinstance(error, VitlabError):
            raise
        reason = str(error).strip().split("\n")[0]  # Lightning goes on with tracebacks of its own
        raise ConfigError(f"{key}: {reason}") from error


def called(name: str, place: str) -> Any:
    """The object of that name. Raises ConfigError where a package that it needs is not installed."""
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
    """Every node with a `_target_`, and where it stands."""
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
    """The `_target_`s that stand in the YAMLs of this project."""
    files = [*CONF.rglob("*.yaml"), *(EXPERIMENTS / "recipe").glob("*.yaml"), *(EXPERIMENTS / "study").glob("*.yaml")]
    return frozenset(
        target for file in files for target in re.findall(r"_target_: *([\w.]+)", file.read_text(encoding="utf-8"))
    )


def plain(cfg: DictConfig) -> dict[str, Any]:
    """A config as plain types, everything resolved."""
    container = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def portable(cfg: DictConfig) -> dict[str, Any]:
    """A config as plain types that keeps references between its keys (${optimizer.lr}), so that a later override
    reaches all who read it, which way a metric is better among them, and holds the values of all else: time, machine,
    environment."""

    def walk(node: Any, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(node._get_node(name), item) for name, item in value.items()}
        if isinstance(value, list):
            return [walk(node._get_node(number), item) for number, item in enumerate(value)]
        if isinstance(value, str) and RESOLVER_CALL.search(value):
            return OmegaConf.select(cfg, node._get_full_key(None))
        return value

    container = OmegaConf.to_container(cfg, resolve=False, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(name): walk(cfg._get_node(name), value) for name, value in container.items()}


def from_saved(config: dict[str, Any], origin: str) -> DictConfig:
    """A config out of a checkpoint. Raises ConfigError when it calls a resolver, which could read a secret from the
    environment: no config is saved with one. Keys that older runs do not have get the value that says what they did."""
    if call := RESOLVER_CALL.search(str(config)):
        raise ConfigError(f"the config in {origin} calls a resolver, {call.group()}...}}, which no saved config does")
    cfg = OmegaConf.create(config)
    for _, node in parts(cfg, "config"):
        for key, value in ADDED.get(node["_target_"], {}).items():
            if key not in node:
                node[key] = value
    return cfg
