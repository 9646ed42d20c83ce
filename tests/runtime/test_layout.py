"""The runtime stays small: three libraries, at most 400 lines of code, the version of vitlab."""

import ast
import re
import sys
import tomllib

from test_structure import NO_VERB

from vitlab.config.home import ROOT

FILES = sorted((ROOT / "runtime").rglob("*.py"))


def list_imports(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def test_it_imports_three_libraries():
    names = {name for file in FILES for name in list_imports(file)}
    assert names - sys.stdlib_module_names == {"numpy", "onnxruntime", "PIL", "vitlab_runtime"}


def test_it_has_at_most_400_lines():
    """Blank ones apart."""
    lines = [line for file in FILES for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert 200 < len(lines) <= 400


def test_functions_are_named_by_verbs():
    nodes = [node for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    assert [n.name for n in nodes if isinstance(n, ast.FunctionDef) and NO_VERB.match(n.name)] == []


def test_its_version_is_that_of_vitlab_which_does_not_contain_it():
    own, main = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")) for folder in ("runtime", ".")
    )
    assert own["project"]["version"] == main["project"]["version"]
    assert {re.split(r"\W", line)[0] for line in own["project"]["dependencies"]} == {"numpy", "onnxruntime", "pillow"}
    assert not any("runtime" in package for package in main["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
