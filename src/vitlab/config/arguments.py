"""Read the words of a command line: its flags, and overrides in Hydra's grammar, in which a file's name needs no
quotes."""

import argparse
import os
import re
import shlex
from collections.abc import Iterable
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Quote
from hydra.errors import HydraException

from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.nodes import escape_references
from vitlab.config.refusals import explain_option
from vitlab.config.values import format_value, quote_text
from vitlab.errors import ConfigError

SPLITS = ("train", "val", "test")
TEXTS = {  # keys whose value is text as it is typed: the name of a file, a folder, or a run, or words for a model
    *("images", "run", "resume", "output", "index", "class_names", "name", "sweep", "hydra.run.dir", "hydra.sweep.dir"),
    *("texts", "question", "sort_into", "device", "share", "root", "archive", "where", "chain", "config"),
    *("model.pretrained", "teacher.pretrained", "data.cache.root"),
    *(f"data.source.{key}" for key in ("root", "file", "val_file", "test_file", "name", "index_root")),
    *(f"data.source.{key}" for key in ("characters", "input.vocabulary", "target.vocabulary")),
    *(f"data.source.{key}.{split}" for key in ("images", "labels") for split in SPLITS),
}
LITERAL = {"images", "texts", "question"}  # in which also ${...} is part of the text
NAMES = {
    "name",
    "sweep",
    "texts",
    "question",
    "device",
    "share",
    "where",
    "config",
}  # in which a ~ at the beginning is no home
OVERRIDE = re.compile(r"(?P<plus>\+{0,2})(?P<key>[^=]*)=(?P<value>.*)", re.DOTALL)
QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
PATH = re.compile(r".*[/\\].*|\.+", re.DOTALL)
ESCAPED = re.compile(r"\\[\\()\[\]{}:=, \t]")  # Hydra's own way to write these characters


class Arguments(argparse.Namespace):
    """The flags of a command, and its overrides; `words` are all of them, as another process could be given them."""

    words: list[str]
    overrides: list[str]
    help: bool
    multirun: bool
    cfg: str | None
    package: str | None
    resolve: bool
    config_dir: str | None
    config_name: str | None


class Parser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would leave."""

    def error(self, message: str) -> NoReturn:
        keys = "; a key is given without dashes, KEY=VALUE" if message.startswith("unrecognized") else ""
        raise ConfigError(f"{message}{keys}")


def read_words(words: list[str], first: str | None = None) -> Arguments:
    """Parse the words of a command line. The values of TEXTS are quoted where Hydra would read them as something else;
    a word without a key that comes `first` is the value of that key. Raises ConfigError for an unknown flag, and for an
    override without a key."""
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    for flag, short in (("--help", "-h"), ("--multirun", "-m"), ("--resolve", "-r")):
        parser.add_argument(flag, short, action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    for flag, short in (("--package", "-p"), ("--config-dir", "-cd"), ("--config-name", "-cn")):
        parser.add_argument(flag, short)
    found = parser.parse_intermixed_args(words, Arguments())
    if found.multirun and found.cfg:
        raise ConfigError("--cfg prints the config of one run; leave out --multirun")
    if found.resolve and not found.cfg:
        raise ConfigError("--resolve goes with --cfg; add it")
    if found.config_dir is not None and not os.path.isdir(found.config_dir):
        raise ConfigError(f"--config-dir={found.config_dir}: there is no such folder")
    given = list(found.overrides)
    several = found.multirun or any(word.startswith("study=") for word in given)
    if first and found.overrides and "=" not in found.overrides[0]:
        found.overrides[0] = f"{first}={found.overrides[0]}"
    flags = [word for word in words if word not in given]
    found.overrides = [quote_value(word, several) for word in found.overrides]
    found.words = [*flags, *found.overrides]
    return found


def quote_value(word: str, several: bool) -> str:
    """Quote the value of an override where Hydra would read it as something else; with `several`, a value with commas
    stays as it is: values of a sweep."""
    found = OVERRIDE.fullmatch(word)
    if found is None:
        return word
    if not found["key"]:
        raise ConfigError(f"cannot read {word!r}: an override is KEY=VALUE, and this one has no key")
    key, value = found["key"], found["value"]
    if QUOTED.fullmatch(value) or (several and "," in value):
        return word
    if key in TEXTS - NAMES and value.startswith("~/"):  # which shells leave as it is, behind a =
        value = os.path.expanduser(value)
        word = f"{found['plus']}{key}={value}"
    if key in TEXTS and value != "null":
        read, exact = parse_value(word), key in LITERAL and "${" in value
        if (read == value and not exact) or (read is not None and ESCAPED.search(value)):
            return word
        if exact:
            value = escape_references(value)
    elif not (is_group(key) and isinstance(parse_value(word), int | float | None)):  # there is no model=16 nor null
        return word
    return f"{found['plus']}{key}={quote_text(value)}"


def format_override(key: str, value: Any) -> str:
    """Write an override for a shell: quoted where it, or Hydra, would read the value as something else."""
    if isinstance(value, str) and parse_value(quote_value(f"{key}={value}", several=False)) == escape_references(value):
        return shlex.quote(f"{key}={value}")
    return shlex.quote(f"{key}={format_value(escape_references(value), Quote.double)}")


def is_group(key: str) -> bool:
    """Whether a key is a group, whose options are chosen by name."""
    group = key.partition("@")[0]
    return group.isidentifier() and any((root / group).is_dir() for root in (CONF, EXPERIMENTS))


def parse_value(word: str) -> object:
    """Read the value of an override by Hydra's grammar; None where that fails."""
    try:
        return OverridesParser.create().parse_override(word).value()
    except HydraException:
        return None


# -- which options are chosen: Hydra takes the last of several, and any file


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
        for options in list_options(one):
            check_options(group, options, str(one.input_line))


def list_options(one: Override) -> list[list[str]]:
    """List the options of each value of an override."""
    value: Any = one.value()
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return [[str(option) for option in (each if isinstance(each, list) else [each])] for each in values]


def check_options(group: str, options: list[str], word: str) -> None:
    for option in options:
        if PATH.fullmatch(option) or (option.startswith("_") and "@" not in group):  # a teacher may be model=_of_run
            raise ConfigError(explain_option(group.partition("@")[0], option))
        if options.count(option) > 1:
            raise ConfigError(f"{word} holds {option} twice; leave one of them out")
    if "none" in options and len(options) > 1:
        raise ConfigError(f"{word} holds none and other options; leave out none, or set only {group}=none")
