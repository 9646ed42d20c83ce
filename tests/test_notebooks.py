"""The notebooks of docs run as they stand, and keep little."""

import json
import runpy

import pytest

from vitlab.config.home import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
LONG = {"own_images"}  # exports a bundle
named = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, id=path.stem, marks=() if path.stem in LONG else pytest.mark.ci) for path in NOTEBOOKS],
)
def test_it_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = runpy.run_path(str(ROOT / "docs" / "run_notebooks.py"))["run"](notebook)
    kept = json.loads(notebook.read_text(encoding="utf-8"))
    assert [kinds(cell) for cell in content["cells"]] == [kinds(cell) for cell in kept["cells"]], "make notebooks"


def kinds(cell):
    """What a cell gives: text, or pictures."""
    return [sorted(output.get("data", ["text"])) for output in cell.get("outputs", [])]


@named
def test_what_it_keeps_is_small_and_of_no_machine(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert len(text) < 200_000
    content = json.loads(text)
    assert content["cells"][0]["source"][0].startswith("# ")
    outputs = [output for cell in content["cells"] for output in cell.get("outputs", [])]
    assert outputs
    said = [line for output in outputs for line in output.get("text", output.get("data", {}).get("text/plain", []))]
    assert [line for line in said if any(home in line for home in ("/home/", "/root/", "/tmp/", "/Users/"))] == []
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
