"""Values of a config against the annotations of the constructor they go to: Hydra takes max_epochs=abc."""

import inspect
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig

from vitlab.errors import ConfigError

PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (float, int),
    str: (str,),
    bool: (bool,),
    type(None): (type(None),),
}


def check_annotations(target: Callable[..., Any], node: DictConfig, key: str) -> None:
    """Raise ConfigError, naming the key and what it takes, for a key that the target does not take, and for a plain
    value of another type than its annotation.

    Annotations that are not made of int, float, str, bool, None are passed over.
    """
    function = target.__init__ if inspect.isclass(target) else target
    check_names(target, function, node, key)
    check_kinds(function, node, key)


def check_kinds(function: Callable[..., Any], node: DictConfig, key: str) -> None:
    try:
        hints = get_type_hints(function)
    except Exception:  # an annotation of somebody else's that cannot be evaluated says nothing
        return
    for name, value in node.items():
        if name in hints and not accepts(hints[name], value):
            raise ConfigError(f"{key}.{name} is {value!r}, and takes {describe(hints[name])}")


def check_names(target: Callable[..., Any], function: Callable[..., Any], node: DictConfig, key: str) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function that is not written in Python says nothing
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = sorted(str(name) for name in node if not str(name).startswith("_") and name not in parameters)
    if unknown:
        kind = getattr(target, "__name__", str(target))
        raise ConfigError(
            f"{key}.{unknown[0]}: {kind} takes no {', '.join(unknown)}; leave it out (~{key}.{unknown[0]})"
        )


def members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the hint itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def accepts(hint: Any, value: Any) -> bool:
    if not all(member in PLAIN for member in members(hint)):
        return True
    if isinstance(value, bool):
        return bool in members(hint)
    return isinstance(value, tuple(kind for member in members(hint) for kind in PLAIN[member]))


def describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a name", bool: "true or false", type(None): "null"}
    return " or ".join(names[member] for member in members(hint))
