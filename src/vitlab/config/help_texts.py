"""Write what --help says of groups and keys. The YAML of a command holds it: at its top a sentence and examples, above
each group of keys a heading, and behind each key its meaning."""

import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from vitlab.config.composition import config_loader
from vitlab.config.home import CONF
from vitlab.invocation import format_command

MOST_COLUMNS, LEFT = 100, 26  # of a terminal that are used, and those of a key and its value
LINE = re.compile(
    r"# -- (?P<heading>.*)"
    r"|  - (?!hydra)(?P<group>\w+): (?P<option>\w+)(?:  # (?P<choice>.*))?"
    r"|(?P<indent> *)(?P<key>\w+):(?: (?P<value>[^ ].*?))?(?:  # (?P<meaning>.*))?"
)


class Option(NamedTuple):
    """A key or group of a command, its value where none is given, what it means, and the heading above it."""

    name: str
    value: str
    meaning: str
    heading: str


def options() -> str:
    """List groups and their options for --help, without those that others build on, whose names begin with _."""
    loader, width = config_loader(), shutil.get_terminal_size().columns
    lines = []
    for group in loader.list_groups(""):
        names = [name for name in loader.get_group_options(group) if not name.startswith("_")]
        if names and group != "hydra":
            lines.append(textwrap.fill(f"{group}: {', '.join(names)}", width, subsequent_indent="  "))
    return "\n".join(lines)


def describe_command(command: str) -> str:
    """Write --help of a command: what it does, its keys under their headings, and examples as they can be typed."""
    about, examples = read_head(command)
    parts, heading = [fill(about, find_width(), 0)], ""
    for option in read_options(command):
        if option.heading != heading:
            heading = option.heading
            parts.append(f"\n{heading[0].upper()}{heading[1:]}:")
        parts.append(format_option(option))
    return "\n".join([*parts, "\nExamples:", textwrap.indent(examples, "  ")])


def read_head(command: str) -> tuple[str, str]:
    """Read the sentence and the examples at the top of a command's YAML, these called as this process was."""
    head, _, _ = (CONF / f"{command}.yaml").read_text(encoding="utf-8").partition("\ndefaults:")
    text = re.sub("^# ?", "", head, flags=re.MULTILINE)
    about, _, examples = re.sub(r"python src/(\w+)\.py", lambda entry: format_command(entry[1]), text).partition("\n\n")
    return about, examples


def read_options(command: str) -> Iterator[Option]:
    """Read the keys of a command from its YAML, without those above the first heading, which nobody sets; then its
    groups."""
    heading, path, groups = "", [""], []
    of_groups = f"groups, whose options {format_command('train')} --help lists"
    for line in (CONF / f"{command}.yaml").read_text(encoding="utf-8").splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            continue
        if found["heading"]:
            heading = found["heading"]
        elif found["group"]:
            groups.append(Option(found["group"], found["option"], found["choice"] or "", of_groups))
        elif found["key"] != "defaults":
            path = [*path[: len(found["indent"]) // 2], found["key"]]
            name, value = ".".join(path), found["value"]
            if heading and (value or found["meaning"]):
                yield Option(name if value else f"{name}.KEY", value or "VALUE", found["meaning"] or "", heading)
    yield from groups


def format_option(option: Option) -> str:
    """Write KEY=VALUE and, in a column of its own, what it means; a value that must be given is said to be needed."""
    width = find_width()
    needed = option.value == "???"
    left = f"  {option.name}={'' if needed else option.value}"
    meaning = f"needed: {option.meaning}" if needed else option.meaning
    if len(left) < LEFT:
        return fill(f"{left:<{LEFT}}{meaning}", width, LEFT)
    return f"{fill(left, width, 4)}\n{fill(' ' * LEFT + meaning, width, LEFT)}"


def find_width() -> int:
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def fill(text: str, width: int, indent: int) -> str:
    """Break a text into lines of at most `width` at its spaces; all but the first are indented."""
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
