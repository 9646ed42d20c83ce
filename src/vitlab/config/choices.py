"""Check which options of groups the words of a command line choose: Hydra takes the last of several, and any file."""

import re
from collections.abc import Iterable
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override

from vitlab.config.arguments import is_group
from vitlab.config.refusals import no_option
from vitlab.errors import ConfigError

PATH = re.compile(r".*[/\\].*|\.+", re.DOTALL)


def check_choices(words: Iterable[str]) -> None:
    """Raise ConfigError for a group that is chosen twice, an option that is no choice, one that stands in a list twice,
    and `none` beside others. Raises HydraException."""
    chosen: dict[str, str] = {}
    for one in OverridesParser.create().parse_overrides(list(words)):
        group = one.key_or_group if one.package is None else f"{one.key_or_group}@{one.package}"
        if one.is_delete() or not (is_group(group) or "/" in group):
            continue
        if group in chosen:
            both = f"{chosen[group]} and {one.input_line}"
            raise ConfigError(f"{group} is chosen twice, by {both}; leave one of them out")
        chosen[group] = str(one.input_line)
        for options in options_of(one):
            check_options(group, options, str(one.input_line))


def options_of(one: Override) -> list[list[str]]:
    """List the options of each value of an override."""
    value: Any = one.value()
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return [[str(option) for option in (each if isinstance(each, list) else [each])] for each in values]


def check_options(group: str, options: list[str], word: str) -> None:
    for option in options:
        if PATH.fullmatch(option) or (option.startswith("_") and "@" not in group):  # a teacher may be model=_of_run
            raise ConfigError(no_option(group.partition("@")[0], option))
        if options.count(option) > 1:
            raise ConfigError(f"{word} holds {option} twice; leave one of them out")
    if "none" in options and len(options) > 1:
        raise ConfigError(f"{word} holds none beside others; leave it out, or give {group}=none")
