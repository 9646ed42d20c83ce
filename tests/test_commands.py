"""The command vitlab: what it offers, what it says, and that its words can be typed."""

import os
import pty
import re
import select
import shlex
import sys
import time

import pytest
from conftest import SRC, TINY

from vitlab import commands, invocation
from vitlab.commands import COMMANDS
from vitlab.config.completion import candidates
from vitlab.config.help_texts import describe_command
from vitlab.config.home import CONF, ROOT
from vitlab.config.keys import read_keys


@pytest.fixture
def vitlab(monkeypatch, tmp_path, capfd):
    """vitlab("train", "seed=1") -> status and what is printed, as from a shell in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words, script="/usr/bin/vitlab"):
        monkeypatch.setattr(sys, "argv", [script, *words])
        status = 0
        try:
            commands.main()
        except SystemExit as end:
            status = end.code or 0
        return status, *capfd.readouterr()

    return run


# -- what there is


def test_a_command_has_a_program_an_entry_a_yaml_and_keys():
    assert set(COMMANDS) == {path.stem for path in SRC.glob("*.py")}
    assert set(COMMANDS) == {path.stem for path in CONF.glob("*.yaml")}
    assert all(read_keys(name).required for name in COMMANDS)
    for name, one in COMMANDS.items():
        program = (SRC / "vitlab" / "programs" / f"{name}.py").read_text(encoding="utf-8")
        assert f"\ndef {one.function}(cfg: DictConfig)" in program


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_the_help_has_a_line_for_each_command(vitlab, words):
    status, out, _ = vitlab(*words)
    assert status == 0
    for name in COMMANDS:
        assert len(re.findall(rf"^  {name} +\w.*$", out, re.M)) == 1
    assert max(map(len, out.splitlines())) <= 80


def test_the_version_is_that_of_the_package(vitlab):
    import vitlab as package

    assert vitlab("--version")[:2] == (0, f"vitlab {package.__version__}\n")


def test_a_misspelt_command_is_one_sentence_with_the_nearest(vitlab):
    assert vitlab("trian", "seed=1") == (2, "", "\nConfigError: there is no command trian; did you mean train?\n")


def test_its_words_are_refused_as_those_of_an_entry(vitlab, cli):
    by_entry = cli("train", "sead=1")
    assert vitlab("train", *TINY, "sead=1")[::2] == (by_entry.status, by_entry.err)


# -- what can be typed

WAYS = {
    "vitlab": ["/usr/bin/vitlab", "{}"],
    "python -m vitlab": [str(SRC / "vitlab" / "__main__.py"), "{}"],
    f"python {SRC}": [str(SRC / "{}.py")],
}


def way(script, command):
    return f"{script}/{command}.py" if script.endswith("src") else f"{script} {command}"


@pytest.mark.parametrize("script", WAYS)
def test_another_command_is_called_as_this_one_was(script, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    argv = [word.format("train") for word in WAYS[script]]
    monkeypatch.setattr(sys, "argv", [*argv, "seed=1"])
    assert invocation.format_command("evaluate") == way(script, "evaluate")
    assert invocation.build_command("train") == argv  # and this one once more, in a job of a sweep


def test_an_entry_in_the_folder_where_one_is_has_a_short_path(monkeypatch):
    monkeypatch.chdir(ROOT)
    for script in ("src/train.py", str(SRC / "train.py")):
        monkeypatch.setattr(sys, "argv", [script])
        assert invocation.format_command("evaluate") == "python src/evaluate.py"


def test_a_script_of_ones_own_that_is_called_train_is_no_entry(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train.py")])
    assert invocation.format_command("evaluate") == "vitlab evaluate"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"train"}))
def test_the_examples_of_a_command_are_called_as_it_was(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vitlab", name])
    assert f"    vitlab {name}" in describe_command(name)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [f"src/{name}.py"])
    assert f"    python src/{name}.py" in describe_command(name)


@pytest.mark.parametrize("name", ["train", "predict", "preview"])
def test_the_help_of_a_command_tells_its_keys_and_names_no_other_way(vitlab, name):
    status, out, err = vitlab(name, "--help")
    assert (status, err) == (0, "")
    assert f"vitlab {name}" in out
    assert "python" not in out
    assert bool(re.search("images=null +a file, a folder, or a quoted glob", out)) == (name == "predict")


# -- completion


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("vitlab tra", ["train"]),
        ("vitlab train trainer=c", ["cpu"]),  # bash begins a word after =
        ("vitlab train -m model=vit_mu", ["vit_mu4"]),
        ("vitlab train trainer=cpu trainer.max_ep", ["trainer.max_epochs="]),
        ("vitlab train --mul", ["--multirun"]),
        ("vitlab predict to", ["top_k="]),
        ("vitlab predict output=", []),  # files are left to bash
        ("vitlab nothing to", []),
    ],
)
def test_what_is_completed(line, found):
    assert candidates(line, COMMANDS) == found


def test_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("vit_a/1", "vit_b/2"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
    assert candidates("vitlab evaluate run=", COMMANDS) == ["latest", "runs/vit_a/1", "runs/vit_b/2"]
    assert candidates("vitlab train resume=runs/vit_b", COMMANDS) == ["runs/vit_b/2"]


def test_options_that_others_are_made_of_are_not_offered():
    found = candidates("vitlab train model=", COMMANDS)
    assert "vit_b16" in found
    assert not [name for name in found if name.startswith("_")]


@pytest.mark.slow
@pytest.mark.ci
def test_bash_completes_a_line(tmp_path):
    """In an interactive bash, whose Tab key is pressed."""
    script = tmp_path / "bin" / "vitlab"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vitlab "$@"\n')
    script.chmod(0o755)
    (tmp_path / "a_run").mkdir()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        environment = {"PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONPATH": str(SRC), "TERM": "dumb"}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": "$ "})
    try:
        os.write(terminal, b'bind "set enable-bracketed-paste off"; eval "$(vitlab completion)"; echo rea""dy\n')
        until(terminal, "ready")
        for typed, completed in [
            ("vitlab eval", "vitlab evaluate "),
            ("vitlab train model=vit_mu", "vitlab train model=vit_mu4 "),
            ("vitlab train trainer.max_ep", "vitlab train trainer.max_epochs="),
            ("vitlab evaluate run=a_", "vitlab evaluate run=a_run/"),
        ]:
            os.write(terminal, f"{typed}\t".encode())
            until(terminal, completed)
            os.write(terminal, b"\x15")  # Ctrl-U: an empty line
    finally:
        os.write(terminal, b"\x03exit\n")
        os.close(terminal)
        os.waitpid(child, 0)


def until(terminal, words, seconds=60):
    read, end = "", time.monotonic() + seconds
    while words not in read:
        assert time.monotonic() < end, read
        if select.select([terminal], [], [], 1)[0]:
            read += os.read(terminal, 4096).decode(errors="replace").replace("\x07", "")
