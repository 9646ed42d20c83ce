"""Prepare the words of a command line for Hydra's grammar, so that a file's name needs no quotes."""

import re
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from vitlab.config.home import CONF, EXPERIMENTS
from vitlab.config.references import literal
from vitlab.config.renamed import refuse_old
from vitlab.errors import ConfigError

SPLITS = ("train", "val", "test")
TEXTS = {  # keys whose value is the name of a file, a folder, or a run
    *("images", "run", "resume", "output", "index", "class_names", "name", "sweep", "hydra.run.dir", "hydra.sweep.dir"),
    *("model.pretrained", "teacher.pretrained", "data.cache.root"),
    *(f"data.source.{key}" for key in ("root", "file", "name", "index_root")),
    *(f"data.source.{key}.{split}" for key in ("images", "labels") for split in SPLITS),
}
LITERAL = {"images"}  # in which also ${...} is part of a name
OVERRIDE = re.compile(r"(?P<plus>\+{0,2})(?P<key>[^=]*)=(?P<value>.*)", re.DOTALL)
QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
ESCAPED = re.compile(r"\\[\\()\[\]{}:=, \t]")  # Hydra's own way to write these characters


def read_words(words: list[str], first: str | None = None) -> list[str]:
    """Give the same words with flags first, as Hydra wants them, and with the values of TEXTS quoted where Hydra would
    read them as something else. A word without a key that comes `first` is the value of that key. Raises ConfigError
    for an unknown flag, and for an override without a key."""
    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    options = parser.parse_intermixed_args(words)
    several = options.multirun or any(word.startswith("study=") for word in options.overrides)
    flags = [word for word in words if word not in options.overrides]
    overrides = list(options.overrides)
    if first and overrides and "=" not in overrides[0]:
        overrides[0] = f"{first}={overrides[0]}"
    return [*flags, *(as_text(word, several) for word in overrides)]


def refuse(message: str) -> NoReturn:
    keys = "; a key is given without dashes, KEY=VALUE" if message.startswith("unrecognized") else ""
    raise ConfigError(f"{message}{keys}")


def as_text(word: str, several: bool) -> str:
    """Quote the value of an override where Hydra would read it as something else; with `several`, a value with commas
    stays as it is: values of a sweep."""
    found = OVERRIDE.fullmatch(word)
    if found is None:
        return word
    if not found["key"]:
        raise ConfigError(f"cannot read {word!r}: an override is KEY=VALUE, and this one has no key")
    key, value = found["key"], found["value"]
    refuse_old(key)
    if QUOTED.fullmatch(value) or (several and "," in value):
        return word
    if key in TEXTS and value != "null":
        read, exact = as_hydra_reads(word), key in LITERAL and "${" in value
        if (read == value and not exact) or (read is not None and ESCAPED.search(value)):
            return word
        if exact:
            value = literal(value)
    elif not (is_group(key) and isinstance(as_hydra_reads(word), int | float | None)):  # there is no model=16 nor null
        return word
    return f"{found['plus']}{key}={QuotedString(value, Quote.single).with_quotes()}"


def is_group(key: str) -> bool:
    """Whether a key is a group, whose options are chosen by name."""
    group = key.partition("@")[0]
    return group.isidentifier() and any((root / group).is_dir() for root in (CONF, EXPERIMENTS))


def as_hydra_reads(word: str) -> object:
    """Read the value of an override by Hydra's grammar; None where that fails."""
    try:
        return OverridesParser.create().parse_override(word).value()
    except HydraException:
        return None
