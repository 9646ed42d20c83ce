"""docs/own_code.md: its files and commands, in their order, from the wheel, in a folder that was empty."""

import re
import shlex
import subprocess

import pytest
from conftest import BARE, TINY
from installed import install_wheel

from vitlab.config.home import ROOT

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "own_code.md").read_text(encoding="utf-8"), re.S)
SHORT = {word.partition("=")[0]: word for word in (*TINY, *BARE, "data.split.labels_per_class=26")}


def shorter(line):
    """The same command with the smallest model, a few steps and no pictures, but for what it states itself."""
    if not line.startswith("vitlab train"):
        return line
    own = [word for key, word in SHORT.items() if f" {key}=" not in line and (key, "stripes") != ("model", "")]
    own = [word for word in own if not ("data=stripes" in line and word.startswith("data."))]
    return f"{line} {shlex.join(own)}"


def write_file(folder, text):
    """A block begins with the name of its file; a second one for the same module is added to it."""
    name, _, content = text.partition("\n")
    path = folder / name.removeprefix("# ")
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() + "\n\n" if path.suffix == ".py" and path.exists() else ""
    path.write_text(before + content)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_line_of_the_page_runs(tmp_path, tmp_path_factory):
    environment = install_wheel(tmp_path_factory.mktemp("wheel"))
    folder, told = tmp_path, []
    for kind, text in BLOCKS:
        if kind != "bash":
            write_file(folder, text)
            continue
        for line in text.splitlines():
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
                continue
            done = subprocess.run(
                shorter(line), cwd=folder, env=environment, shell=True, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            told.append(done.stdout)
    whole = "".join(told)
    assert "largest logit: " in whole
    assert "test/auroc" in whole
    assert "run=run 'trust=[mylab]'" in whole
    assert (tmp_path / "mylab" / "runs" / "losses" / "sweep.json").is_file()
