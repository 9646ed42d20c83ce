"""Every command of the README is one that its entry takes."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from vitlab.config.home import CONF, ROOT

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
VIT = ROOT / "src" / "vitlab" / "models" / "vit.py"
COMMANDS = sorted(set(re.findall(r"python src/(\w+\.py[^`\n|#]*)", README)))


def overrides_of(words: list[str]) -> list[str]:
    """Without flags and what is left open; of a sweep the first value."""
    words = [word for word in words if not word.startswith("-") and "…" not in word and "=" in word]
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


def test_the_code_that_is_shown_is_the_models_own():
    """But for docstrings, types and comments."""
    (shown,) = re.findall(r"```python\n(.*?)```", README, re.S)
    model = next(node for node in ast.parse(VIT.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
    own = {node.name: bare(node) for node in model.body if isinstance(node, ast.FunctionDef)}
    for function in ast.parse(shown).body:
        assert bare(function) == own[function.name]


def bare(function: ast.FunctionDef) -> str:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    arguments = [argument.arg for argument in function.args.args]
    return f"{arguments} {[ast.unparse(line) for line in body]}"
