"""resume=auto: the same command again goes on with its own run."""

import csv
import json
from pathlib import Path

import pytest
from conftest import BARE, FEW, TINY
from test_resume import Killed

from vitlab.checkpoints import file, run_lock

OPTIONS = [*BARE, *FEW, "trainer.max_epochs=3", "callbacks.latest_state.every_n_steps=2", "trainer.log_every_n_steps=1"]
AUTO = [*OPTIONS, "resume=auto"]


def runs(tmp_path):
    return sorted(path.parent for path in tmp_path.glob("runs/*/*/.identity"))


def killed_in(monkeypatch, cli, step, *words):
    from vitlab.tasks import Classification

    training_step = Classification.training_step

    def killed(self, batch, batch_idx):
        if self.global_step == step:
            raise Killed
        return training_step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(Classification, "training_step", killed)
        with pytest.raises(Killed):
            cli("train", *words)


@pytest.mark.ci
@pytest.mark.slow
def test_the_same_command_again_goes_on_and_then_has_nothing_left_to_do(cli, tmp_path, monkeypatch):
    killed_in(monkeypatch, cli, 7, *AUTO)
    (folder,) = runs(tmp_path)
    assert file.read(folder / "checkpoints" / "latest.ckpt")["global_step"] == 6
    again = cli("train", *AUTO, "data.loading.num_workers=0", "trainer=auto", "trainer.accelerator=cpu")
    assert again.status == 0, again.err
    assert runs(tmp_path) == [folder]
    with open(folder / "metrics.csv", newline="") as f:
        assert [int(row["step"]) for row in csv.DictReader(f)] == list(range(1, 13))
    assert json.loads((folder / "result.json").read_text())["steps_of_this_start"] == 6
    before = (folder / "metrics.csv").stat().st_mtime_ns
    done = cli("train", *AUTO)
    assert done.status == 0, done.err
    assert "is complete; there is nothing to do" in done.out
    assert str(folder.relative_to(tmp_path)) in done.out
    assert (folder / "metrics.csv").stat().st_mtime_ns == before
    run_lock.leave_all()  # as the end of its process does
    checked = cli("check", *TINY, *AUTO)
    assert checked.status == 0, checked.err
    assert checked.out.split(maxsplit=1) == ["answer", f"{done.out.splitlines()[-1]}\n"]


@pytest.mark.slow
def test_another_config_is_another_run(cli, tmp_path):
    short = [word for word in AUTO if "max_epochs" not in word]
    for words in (["trainer.max_epochs=1"], ["trainer.max_epochs=1", "seed=1"], ["trainer.max_epochs=1"]):
        assert cli("train", *short, *words).status == 0
    assert len(runs(tmp_path)) == 2


def test_a_run_at_work_is_refused_by_name_and_checked_when_it_is_not(cli, tmp_path, monkeypatch):
    check = [*TINY, *AUTO, "seconds=0"]
    assert cli("check", *check).status == 0  # it would be a new one
    killed_in(monkeypatch, cli, 3, *AUTO)
    (folder,) = runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command, words in {"train": AUTO, "check": check}.items():
        run_lock.take(folder, break_lock=False)
        again = cli(command, *words)
        run_lock.leave(folder)
        assert again.status == 4
        assert str(folder.relative_to(tmp_path)) in again.err
        assert "in use by process" in again.err
    assert cli("check", *check).status == 0


def test_of_two_runs_of_one_config_none_is_taken(cli, tmp_path, monkeypatch):
    killed_in(monkeypatch, cli, 3, *AUTO)
    (folder,) = runs(tmp_path)
    second = folder.with_name("other")
    (second / "checkpoints").mkdir(parents=True)
    for name in (".identity", "checkpoints/latest.ckpt"):
        (second / name).write_bytes((folder / name).read_bytes())
    again = cli("train", *AUTO)
    assert again.status == 4
    for path in (folder, second):
        assert str(path.relative_to(tmp_path)) in again.err


@pytest.mark.slow
def test_a_folder_that_is_named_is_gone_on_with_or_belongs_to_another(cli, tmp_path, monkeypatch):
    killed_in(monkeypatch, cli, 3, *AUTO, "hydra.run.dir=here")
    assert cli("train", *AUTO, folder="here").status == 0
    assert json.loads(Path("here/result.json").read_text())["steps_of_this_start"] == 10
    other = cli("train", *AUTO, "seed=4", folder="here")
    assert other.status == 2
    assert "here holds a run" in other.err
