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
    """Raise ConfigError, naming the key and what it takes, for a plain value of another type than its annotation.

    Annotations that are not made of int, float, str, bool, None are passed over.
    """
    function = target.__init__ if inspect.isclass(target) else target
    try:
        hints = get_type_hints(function)
    except Exception:  # an annotation of somebody else's that cannot be evaluated says nothing
        return
    for name, value in node.items():
        if name in hints and not accepts(hints[name], value):
            raise ConfigError(f"{key}.{name} is {value!r}, and takes {describe(hints[name])}")


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
