"""Build objects from config nodes: the one place where a `_target_` is called."""

import functools
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig

from vitlab.config.annotations import NODE_KEYS, check_complete, check_node, check_types
from vitlab.config.home import CONF, EXPERIMENTS, OF_THE_USER
from vitlab.config.nodes import resolve_config
from vitlab.config.refusals import get_first_line
from vitlab.errors import ConfigError, VitlabError
from vitlab.out_of_memory import is_out_of_memory

TARGET = re.compile(r"""_target_: *['"]?([\w.]+)""")
OURS = "vitlab"
TRUSTED: list[str] = []  # the packages that the running command trusts


def build(node: DictConfig, key: str, **runtime: Any) -> Any:
    """Call the node's `_target_` with its values and the `runtime` objects, which no YAML can hold.

    Only targets that `is_trusted` are called, whatever the config's origin. Raises ConfigError, naming `key`, when a
    value is refused.
    """
    values = resolve_config(node)
    if "_target_" not in values:
        raise ConfigError(f"{key} has no _target_; add the name of the class or function to build")
    for place, part in find_nodes(values, key):
        if not is_trusted(part["_target_"]):
            package = part["_target_"].partition(".")[0]
            raise ConfigError(
                f"{place}: _target_ {part['_target_']} is not part of vitlab; if it is your own code, add "
                f"trust=[{package}], or name it in a YAML in the folder of --config-dir="
            )
        check_node(import_target(part["_target_"], place), part, place)
    return construct(values, key, **runtime)


def construct(value: Any, key: str, **runtime: Any) -> Any:
    """Build what plain values describe: lists and dicts of values, and for a dict with a `_target_` what that returns,
    or a partial of it. With `runtime` objects it is always called."""
    if isinstance(value, list):
        return [construct(item, f"{key}[{number}]") for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "_target_" not in value:
        return {name: construct(inner, f"{key}.{name}") for name, inner in value.items()}
    target = import_target(value["_target_"], key)
    taken = check_types(target, value, key)
    left = taken.keys() - NODE_KEYS - runtime.keys()
    parts = {name: construct(inner, f"{key}.{name}") for name, inner in taken.items() if name in left}
    made = functools.partial(target, *construct(list(taken.get("_args_", ())), f"{key}._args_"), **parts)
    if taken.get("_partial_") and not runtime:
        return made
    if "_args_" not in taken:
        check_complete(target, {*parts, *runtime}, key)
    try:
        return made(**runtime)
    except Exception as error:  # whatever a constructor of ours or another library makes of a value
        raise translate_error(error, key) from error


def translate_error(error: Exception, key: str) -> VitlabError:
    """Turn what a constructor raised into a sentence that names the key of its node."""
    if isinstance(error, VitlabError):
        return error
    if is_out_of_memory(error) or "overflowed" in str(error):  # a size that overflows
        return ConfigError(f"{key} needs more memory than this machine has: {get_first_line(error)}")
    return ConfigError(f"{key}: {get_first_line(error)}")  # Lightning appends its own tracebacks


def import_target(name: str, place: str) -> Any:
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
        raise ConfigError(f"{place}: there is no {name}; correct the name, or update its package") from error


def find_nodes(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every node with a `_target_` in plain values, and its key, from the outside inwards."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield key, value
        for name, inner in value.items():
            yield from find_nodes(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from find_nodes(item, f"{key}[{number}]")


# -- whose code


@functools.cache
def project_targets() -> frozenset[str]:
    """Collect the `_target_`s that stand in the YAMLs of this project."""
    folders = (EXPERIMENTS / "recipe", EXPERIMENTS / "study")
    return targets_in([*CONF.rglob("*.yaml"), *(file for folder in folders for file in folder.glob("*.yaml"))])


def targets_in(files: Iterable[Path]) -> frozenset[str]:
    return frozenset(target for file in files for target in TARGET.findall(file.read_text(encoding="utf-8")))


def is_trusted(target: str) -> bool:
    """Whether a config may build the target of that name."""
    if target in project_targets() or is_within(target, TRUSTED):
        return True
    return any(target in targets_in(Path(folder).rglob("*.yaml")) for folder in OF_THE_USER)


def is_within(target: str, packages: Iterable[str]) -> bool:
    return any(target.startswith(f"{package}.") for package in packages)
