"""What --help tells of a command."""

import re

import pytest
from conftest import mostly_slow

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


@pytest.mark.parametrize("command", mostly_slow(COMMANDS, quick=3))
def test_help_of_another_command_tells_of_its_keys_alone(cli, command):
    told = cli(command, "--help")
    assert told.status == 0, told.err
    text = re.sub(r"python \S*/src/", "python src/", told.out)  # an entry is called by its path
    assert text.startswith(f"# python src/{command}.py")
    for line in (CONF / f"{command}.yaml").read_text().splitlines():
        if line and not line.startswith(("defaults:", "  - ")):
            assert line in text
    assert "hydra: in_place" not in told.out
