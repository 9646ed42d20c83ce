"""What --help tells of a command."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from conftest import BARE, FEW, SRC
from omegaconf import OmegaConf

from vitlab.config.help_texts import read_head, read_options
from vitlab.config.home import CONF


def test_help_lists_what_can_be_chosen_and_nothing_else(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = cli("train", "--help", tiny=False)
    assert told.status == 0
    groups = told.out.split("== Groups and their options ==")[1].split("== Examples ==")[0]
    words = groups.replace(",", " ").replace(":", " ").split()
    assert {"vit_b16", "digits", "recipe", "few_labels", "study"} <= set(words)
    assert not [word for word in words if word.startswith("_")]
    assert all(len(line) <= 80 and not line.endswith(":") for line in groups.splitlines())


COMMANDS = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "train")
NOT_SET = {"global_batch_size"}  # of the configs of data


def values_of(command):
    """The keys of a command with the values that its YAML states, as they are typed."""
    stated = OmegaConf.to_container(OmegaConf.load(CONF / f"{command}.yaml"))
    groups = [default for default in stated.pop("defaults") if isinstance(default, dict)]
    chosen = {key: option for group in groups for key, option in group.items() if key.isidentifier() and key != "hydra"}
    return {key: value for key, value in {**stated, **chosen}.items() if not isinstance(value, dict) or not value}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_key_of_a_command_has_its_value_and_meaning_under_a_heading(command):
    found = list(read_options(command))
    assert all(option.meaning and option.heading for option in found)
    written = {option.name: yaml.safe_load(option.value) for option in found}
    assert len(written) == len(found)
    stated = values_of(command)
    assert stated.keys() - written.keys() <= NOT_SET
    assert stated | written == written | stated


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_a_terminal(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = cli(command, "--help")
    assert told.status == 0, told.err
    about, *groups, examples, _ = told.out.split("\n\n")
    assert "# " not in told.out
    assert all(re.match(r"[A-Z][^\n]*:\n  \S+=", group) for group in groups), told.out
    assert max(map(len, "\n".join([about, *groups]).splitlines())) <= 80
    assert examples.startswith("Examples:\n")
    assert {option.name for option in read_options(command)} == set(re.findall(r"^  ([\w.]+)=", told.out, re.M))


def examples_of(command):
    """The commands among the examples, each as the words of a shell."""
    lines = read_head(command)[1].splitlines()
    return [shlex.split(line) for line in lines if line.startswith("  ")]


SHORT = [*FEW, *BARE, "trainer.max_epochs=1", "trainer.devices=1"]
SMALLER = ["model=vit_mu4", *FEW, "trainer.precision=32-true"]
# which measure, and train
LONG = {"check", "compare", "compress", "export", "fit", "report", "serve", "sweeps", "tune", "verify"}
# of other runs than that of the digits: tests/programs/test_verify.py and test_explain.py
ELSEWHERE = {"chain=chain.jsonl", "texts=captions.txt"}


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in LONG else pytest.mark.ci) for name in COMMANDS]
)
@pytest.mark.slow
def test_the_examples_of_a_command_run(cli, command, short_run, tmp_path, monkeypatch):
    """In their order, as they are copied; of a training with a smaller model and fewer steps."""
    monkeypatch.setattr(sys, "argv", [str(SRC / f"{command}.py")])
    shutil.copytree(short_run, tmp_path / "runs" / "vit_mu4_digits" / "run")  # as train leaves it
    examples = examples_of(command)
    if command == "serve":  # until it would wait for requests
        assert cli("export", "run=latest", "format=bundle", "output=bundle").status == 0
        monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    assert 2 <= len(examples) <= 4
    for _, script, *words in examples:
        name = Path(script).stem
        if ELSEWHERE & set(words):
            continue
        done = cli(name, *words, *(SHORT if name == "train" else SMALLER if name == "tune" else ()))
        assert done.status == 0, (script, words, done.err)


def test_each_command_stands_in_its_own_examples():
    for command in COMMANDS:
        names = [Path(words[1]).stem if words[0] == "python" else words[1] for words in examples_of(command)]
        assert set(names) - {"train"} == {command}
