"""Check the values of a config against the annotations of the constructor they go to: Hydra would take
max_epochs=abc. pydantic checks; the sentences are ours."""

import functools
import inspect
import math
import shlex
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra.core.override_parser.types import Quote
from pydantic import AfterValidator, ConfigDict, Strict, TypeAdapter, ValidationError

from vitlab.config.foreign_ranges import BY_PACKAGE
from vitlab.config.usual_words import suggest_key
from vitlab.config.values import format_value, show_value
from vitlab.errors import ConfigError
from vitlab.ranges import Range

PLAIN: dict[Any, tuple[str, str]] = {  # what a value is called, and several of it
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a name", "names"),
    bool: ("true or false", "true or false"),
    type(None): ("null", "null"),
    dict: ("keys with values", "keys with values"),
}
NODE_KEYS = ("_target_", "_partial_", "_args_")  # keys of any node
STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, str_min_length=1)


def check_node(target: Callable[..., Any], node: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the plain values of a node as its target takes them: whole numbers as fractions where it takes these.

    Raises ConfigError, naming the key and what it takes, for a key that the target does not take, and for a value of
    another type than its annotation, out of its Range, NaN or infinite. Annotations of other types than int, float,
    str, bool, None, lists of these and literals are passed over.
    """
    check_names(target, node, key)
    return check_types(target, node, key)


def check_names(target: Callable[..., Any], node: Iterable[str], key: str) -> None:
    """Raise ConfigError for a key that the target does not take."""
    known = keywords(target)
    unknown = sorted(name for name in node if name not in NODE_KEYS and name not in (known or ()))
    if known is not None and unknown:
        raise refuse_unknown_key(key, unknown[0], known, target)


def check_complete(target: Callable[..., Any], given: Iterable[str], key: str) -> None:
    """Raise ConfigError, naming the keys of a node, for what a target needs and is not `given`."""
    needed = [
        name
        for name, parameter in (keywords(target) or {}).items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
    ]
    missing = sorted(set(needed) - set(given), key=needed.index)
    if missing:
        raise ConfigError(
            f"{key} lacks keys that {target.__name__} needs: {', '.join(missing)}; add it to its YAML, or set "
            f"+{key}.{missing[0]}=VALUE"
        )


def check_types(target: Callable[..., Any], node: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the values of a node as its target takes them. Raises ConfigError for one of another type."""
    hints = get_hints(target)
    return {name: check_value(hints.get(name, Any), value, join_key(key, name)) for name, value in node.items()}


def check_value(hint: Any, value: Any, key: str) -> Any:
    """Return a plain value as its annotation takes it. Raises ConfigError for another type, NaN and infinity."""
    if not is_finite(value):
        raise ConfigError(f"{key} {show_value(value)} is not finite")
    try:
        return validator(hint).validate_python(value)
    except ValidationError:
        pass
    if value == {}:
        raise ConfigError(f"{key} is empty; choose an option of its group that has a _target_")
    advice, text = "", convert_to_text(value)
    if isinstance(value, str) and accepts(hint, parse_number(value)):
        advice = f", but text; to read it from the environment, type '{key}=\"${{oc.decode:${{oc.env:NAME}}}}\"'"
    elif accepts(hint, text):
        advice = f"; quote it: {shlex.quote(f'{key}={format_value(text, Quote.double)}')}"
    raise ConfigError(f"{key} {show_value(value)} is not {describe(hint)}{advice}")


def refuse_unknown_key(key: str, name: str, known: Iterable[str], target: Any = None) -> ConfigError:
    """Make the refusal of an unknown key."""
    kind = f"{target.__name__} takes no {name}" if hasattr(target, "__name__") and key else "there is no such key"
    return ConfigError(
        f"{join_key(key, name)}: {kind}{suggest_key(name, known, join_key(key, '')) or '; leave it out'}"
    )


def join_key(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def parse_number(text: str) -> float | str:
    """Read a text as a number; the text itself where it is none."""
    try:
        return int(text) if text.strip("+-").isdecimal() else float(text)
    except ValueError:
        return text


def convert_to_text(value: Any) -> Any:
    """Give numbers, true and false as text, also those in a list."""
    if isinstance(value, list):
        return [convert_to_text(item) for item in value]
    return show_value(value) if isinstance(value, int | float) else value


# -- what a target takes


def constructors(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give the functions whose keywords a target takes: its own, and, where a class of ours hands `**others` on, that
    of the class above."""
    if not inspect.isclass(target):
        yield target
        return
    for kind in target.__mro__ if target.__new__ is not object.__new__ else target.__mro__[:-1]:  # object takes none
        if "__init__" in vars(kind):
            function = vars(kind)["__init__"]
            yield function
            if not is_ours(kind) or not takes_others(inspect.signature(function).parameters):
                return


def takes_others(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def keywords(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """List what a target takes, by name; None where it takes anything, or is not written in Python and does not
    tell."""
    found: dict[str, inspect.Parameter] = {}
    parameters: Mapping[str, inspect.Parameter] = {}
    try:
        for function in constructors(target):
            parameters = inspect.signature(function).parameters
            found = {**{n: p for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD and n != "self"}, **found}
    except ValueError:
        return None
    return None if takes_others(parameters) else found


@functools.cache
def get_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Give the annotations of what a target takes, by name."""
    hints: dict[str, Any] = {}
    with suppress(Exception):  # an annotation of somebody else's that cannot be evaluated says nothing
        for function in constructors(target):
            hints = {**get_type_hints(function, include_extras=True), **hints}
    module = getattr(target, "__module__", None) or ""
    return hints | next((ranges for package, ranges in BY_PACKAGE.items() if module.startswith(package)), {})


# -- annotations for pydantic, and in words


def accepts(hint: Any, value: Any) -> bool:
    """Whether a plain value matches an annotation; true for annotations that cannot be checked here."""
    try:
        validator(hint).validate_python(value)
    except ValidationError:
        return False
    return True


@functools.cache
def validator(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(convert_hint(hint), config=STRICT)


def convert_hint(hint: Any) -> Any:
    """Write an annotation as pydantic checks it before anything is built."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[convert_hint(arguments[0]), *(AfterValidator(one.check) for one in find_ranges(hint))]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(convert_hint, arguments))]  # noqa: UP007
    if origin in (list, Sequence):
        return list[convert_hint(arguments[0])]  # type: ignore[misc]  # an element type known only here
    if origin is tuple:
        return Annotated[tuple[tuple(map(convert_hint, arguments))], Strict(False)]  # type: ignore[misc]  # likewise
    if is_built(hint):
        return Annotated[dict, AfterValidator(require_target)]
    return hint if origin is Literal or hint in PLAIN else dict if origin is dict else Any


def require_target(node: dict[str, Any]) -> dict[str, Any]:
    if "_target_" not in node:
        raise ValueError("nothing is built")
    return node


def find_ranges(hint: Any) -> list[Range]:
    return [extra for extra in get_args(hint)[1:] if isinstance(extra, Range)]


def is_built(hint: Any) -> bool:
    """Whether a node of its own builds what a hint names."""
    return get_origin(hint) in (Callable, functools.partial) or is_ours(hint)


def is_ours(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.startswith("vitlab.")


def members(hint: Any) -> list[Any]:
    """List the alternatives of a union, or the hint itself."""
    if get_origin(hint) in (Union, types.UnionType):
        return [member for part in get_args(hint) for member in members(part)]
    return [hint]


def describe(hint: Any, several: bool = False) -> str:
    """Say in words what an annotation takes; `several`: in the plural."""
    return " or ".join(dict.fromkeys(describe_member(member, several) for member in members(hint)))


def describe_member(hint: Any, several: bool) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([describe_member(arguments[0], several), *map(str, find_ranges(hint))])
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (list, Sequence):
        return f"a list of {describe(arguments[0], several=True)}"
    if origin is tuple:
        return f"a list of {len(arguments)} {describe(arguments[0], several=True)}"
    return "what a _target_ builds" if is_built(hint) else PLAIN[origin or hint][several]
