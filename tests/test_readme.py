"""Every command of the README is one that its entry takes."""

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from vitlab.home import CONF

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python src/(\w+\.py[^`\n|#]*)", README)))


def overrides_of(words: list[str]) -> list[str]:
    """Without flags and what is left open; of a sweep the first value."""
    words = [word for word in words if not word.startswith("-") and "…" not in word]
    parsed = OverridesParser.create().parse_overrides(words)
    first = {o.input_line: next(o.sweep_string_iterator()) for o in parsed if o.is_sweep_override()}
    return [f"{o.get_key_element()}={first[o.input_line]}" if o.input_line in first else o.input_line for o in parsed]


def test_there_are_commands_of_every_entry():
    assert len(COMMANDS) > 30
    entries = {path.name for path in (CONF.parent / "src").glob("*.py")}
    assert {command.split()[0] for command in COMMANDS} == entries


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_composes(command):
    entry, *words = shlex.split(re.sub(r"<[^>]*>", "X", command))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose(entry.removesuffix(".py"), overrides=overrides_of(words))
