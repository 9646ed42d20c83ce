"""A file of a run that is damaged, or whose place a folder has, is named in one sentence."""

import os
import shutil

import pytest
from conftest import refuses


@pytest.fixture
def run(short_run, tmp_path):
    return shutil.copytree(short_run, tmp_path / "run")


FILES = ["config.yaml", "metrics.csv", "provenance.json", "result.json", "train.log"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [".lock", ".identity", *FILES, "checkpoints/best.ckpt", "checkpoints/latest.ckpt"])
def test_a_folder_in_place_of_a_file_is_refused_before_the_work(cli, run, name):
    (run / name).unlink(missing_ok=True)
    (run / name / "x").mkdir(parents=True)
    before = sorted(run.rglob("*"))
    for command, *words in (("train", "trainer.max_epochs=3"), ("check",)):
        refused = cli(command, "resume=run", *words, tiny=False)
        if (command, name) == ("check", ".lock"):
            continue  # which nothing checks that does not write
        assert refused.status == 4, refused.err
        assert refuses(refused, f"run/{name} is ")
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize("words", [("train", "resume=run"), ("evaluate", "run=run")])
def test_a_pipe_in_place_of_the_identity_is_refused(cli, run, words):
    (run / ".identity").unlink()
    os.mkfifo(run / ".identity")
    refused = cli(*words, tiny=False)
    assert refused.status == 4
    assert refuses(refused, "run/.identity is a pipe or a device")


def test_a_damaged_lock_is_refused_until_it_is_broken(cli, run):
    (run / ".lock").write_bytes(b"\xff\xfe{[garbage\0")
    refused = cli("train", "resume=run", tiny=False)
    assert refused.status == 4
    assert refuses(refused, "run/.lock is damaged")
    assert cli("train", "resume=run", "break_lock=true", tiny=False).status == 0
