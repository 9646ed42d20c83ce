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

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, ConfigDict, Strict, StringConstraints, TypeAdapter, ValidationError

from vitlab.config.foreign_ranges import BY_PACKAGE
from vitlab.errors import ConfigError
from vitlab.ranges import Range
from vitlab.spelling import instead_of

PLAIN: dict[Any, tuple[str, str]] = {  # what a value is called, and several of it
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a name", "names"),
    bool: ("true or false", "true or false"),
    type(None): ("null", "null"),
    dict: ("keys with values", "keys with values"),
}


OF_HYDRA = ("_target_", "_partial_", "_args_", "_convert_", "_recursive_")  # keys of any node
BUILT = {"_target_": ""}  # stands for a node that another constructor makes a value of


def check_annotations(target: Callable[..., Any], node: DictConfig, key: str) -> None:
    """Raise ConfigError, naming the key and what it takes, for a key that the target does not take, and for a value of
    another type than its annotation: also one out of its Range, NaN or infinite.

    Annotations that are not made of int, float, str, bool, None, of lists of these and of literals are passed over.
    """
    check_names(target, node, key)
    check_kinds(target, node, key)


def constructors(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give the functions whose keywords a target takes: its own, and, where a class of ours hands `**others` on, that
    of the class above."""
    if not inspect.isclass(target):
        yield target
        return
    for kind in target.__mro__:
        if "__init__" in vars(kind):
            function = vars(kind)["__init__"]
            yield function
            if not of_ours(kind) or not hands_on(inspect.signature(function).parameters):
                return


def hands_on(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def keywords(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """List what a target takes, by name; None where it takes anything, or is not written in Python and does not
    tell."""
    found: dict[str, inspect.Parameter] = {}
    try:
        for function in constructors(target):
            parameters = inspect.signature(function).parameters
            found = {**{n: p for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD and n != "self"}, **found}
    except ValueError:
        return None
    return None if hands_on(parameters) else found


@functools.cache
def hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    """Give the annotations of what a target takes, by name."""
    hints: dict[str, Any] = {}
    with suppress(Exception):  # an annotation of somebody else's that cannot be evaluated says nothing
        for function in constructors(target):
            hints = {**get_type_hints(function, include_extras=True), **hints}
    module = getattr(target, "__module__", None) or ""
    return hints | next((ranges for package, ranges in BY_PACKAGE.items() if module.startswith(package)), {})


def fractions(target: Callable[..., Any], node: DictConfig) -> dict[str, Any]:
    """Give the whole numbers of a node, also those in lists, that its target takes as numbers with a fraction: torch
    would compute with them as with counts."""
    values = {name: (hint, as_plain(node[name])) for name, hint in hints_of(target).items() if name in node}
    numbers = {
        name: (hint, value)
        for name, (hint, value) in values.items()
        if value != [] and all(type(one) in (int, float) for one in (value if isinstance(value, list) else [value]))
    }
    return {name: validator(hint).validate_python(value) for name, (hint, value) in numbers.items()}


def check_kinds(target: Callable[..., Any], node: DictConfig, key: str) -> None:
    hints = hints_of(target)
    for name in node:
        value = node[name]
        if OmegaConf.is_dict(value):  # what is in it, its own target reads
            value = BUILT if "_target_" in value else {}
        check_value(hints.get(str(name), Any), as_plain(value), dotted(key, name))


def check_value(hint: Any, value: Any, key: str) -> None:
    if not finite(value):
        raise ConfigError(f"{key} {shown(value)} is not finite")
    if not accepts(hint, value):
        if value == {}:
            raise ConfigError(f"{key} is empty; choose an option of its group that has a _target_")
        text = as_text(value)
        quotes = f"; quote it: {shlex.quote(f'{key}={quoted(text)}')}" if accepts(hint, text) else ""
        if isinstance(value, str) and accepts(hint, as_number(value)):
            quotes = f", but text; from the environment take '{key}=\"${{oc.decode:${{oc.env:NAME}}}}\"'"
        raise ConfigError(f"{key} {shown(value)} is not {describe(hint)}{quotes}")


def as_number(text: str) -> float | str:
    """Read a text as a number; the text itself where it is none."""
    try:
        return int(text) if text.strip("+-").isdecimal() else float(text)
    except ValueError:
        return text


def as_text(value: Any) -> Any:
    """Give numbers, true and false as text, also those in a list."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return shown(value) if isinstance(value, int | float) else value


def quoted(value: Any) -> str:
    """Write texts as Hydra reads them."""
    if isinstance(value, list):
        return f"[{','.join(map(quoted, value))}]"
    return QuotedString(value, Quote.double).with_quotes()


def check_names(target: Callable[..., Any], node: Iterable[Any], key: str) -> None:
    known = keywords(target)
    unknown = sorted(str(name) for name in node if name not in OF_HYDRA and name not in (known or ()))
    if known is not None and unknown:
        raise unknown_key(key, unknown[0], known, target)


def unknown_key(key: str, name: str, known: Iterable[str], target: Any = None) -> ConfigError:
    """Make the refusal of a key that nobody reads."""
    kind = f"{target.__name__} takes no {name}" if hasattr(target, "__name__") and key else "there is no such key"
    return ConfigError(f"{dotted(key, name)}: {kind}{instead_of(name, known, dotted(key, '')) or '; leave it out'}")


def dotted(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def as_plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def members(hint: Any) -> list[Any]:
    """List the alternatives of a union, or the hint itself."""
    if get_origin(hint) in (Union, types.UnionType):
        return [member for part in get_args(hint) for member in members(part)]
    return [hint]


def accepts(hint: Any, value: Any) -> bool:
    """Whether a plain value matches an annotation; true for annotations that cannot be checked here."""
    try:
        validator(hint).validate_python(value)
    except ValidationError:
        return False
    return True


@functools.cache
def validator(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(in_pydantic(hint), config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def in_pydantic(hint: Any) -> Any:
    """Write an annotation as pydantic checks it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[in_pydantic(arguments[0]), *(AfterValidator(one.check) for one in bounds_of(hint))]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(in_pydantic, arguments))]  # noqa: UP007
    if origin in (list, Sequence):
        return list[in_pydantic(arguments[0])]  # type: ignore[misc]
    if origin is tuple:
        return Annotated[tuple[tuple(map(in_pydantic, arguments))], Strict(False)]  # type: ignore[misc]
    if is_built(hint):
        return Annotated[dict, AfterValidator(built)]
    if (origin or hint) is dict:
        return dict
    if hint is str:
        return Annotated[str, StringConstraints(min_length=1)]
    return hint if origin is Literal or hint in PLAIN else Any


def built(node: dict[str, Any]) -> dict[str, Any]:
    if "_target_" not in node:
        raise ValueError("nothing is built")
    return node


def bounds_of(hint: Any) -> list[Range]:
    return [extra for extra in get_args(hint)[1:] if isinstance(extra, Range)]


def is_built(hint: Any) -> bool:
    """Whether a node of its own builds what a hint names."""
    return get_origin(hint) in (Callable, functools.partial) or of_ours(hint)


def of_ours(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.startswith("vitlab.")


def describe(hint: Any, several: bool = False) -> str:
    """Say in words what an annotation takes; `several`: in the plural."""
    return " or ".join(dict.fromkeys(in_words(member, several) for member in members(hint)))


def in_words(hint: Any, several: bool) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([in_words(arguments[0], several), *map(str, bounds_of(hint))])
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (list, Sequence):
        return f"a list of {describe(arguments[0], several=True)}"
    if origin is tuple:
        return f"a list of {len(arguments)} {describe(arguments[0], several=True)}"
    if is_built(hint):
        return "what a _target_ builds"
    return PLAIN[origin or hint][several]


def shown(value: Any) -> str:
    """Write a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value) if value == "" else str(value)
