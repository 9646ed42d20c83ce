"""The README is short, and the code that it shows is the model's own."""

import ast
import re

from vitlab.config.home import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
VIT = ROOT / "src" / "vitlab" / "models" / "vit.py"


def test_it_has_at_most_120_lines():
    assert len(README.splitlines()) <= 120


def test_its_test_command_is_the_one_that_guards_a_landing():
    assert "make test " in README
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


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
