"""A user names a run by its folder or by one of its checkpoints."""

import os
from pathlib import Path

import pytest

from vitlab.checkpoints.run_folder import find_checkpoint, find_model, run_folder
from vitlab.errors import CheckpointError


@pytest.fixture
def run(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("best", "latest"):
        (checkpoints / f"{name}.ckpt").write_text("")
    return checkpoints.parent


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ("runs/a", "runs/a"),
        ("runs/a/", "runs/a"),
        ("runs/a/checkpoints/best.ckpt", "runs/a"),
        ("checkpoints/best.ckpt", "."),
        ("elsewhere/best.ckpt", "elsewhere"),
        ("runs/a.b", "runs/a.b"),
    ],
)
def test_a_run_is_named_by_its_folder_or_a_checkpoint_in_it(named, folder):
    assert run_folder(named) == run_folder(Path(named)) == Path(folder)


def test_a_file_is_itself(run):
    other = run / "checkpoints" / "best.ckpt"
    assert find_checkpoint(other, "latest") == find_checkpoint(str(other)) == other


def test_of_a_folder_the_first_name_that_exists_is_taken(run):
    assert find_checkpoint(run, "best", "latest") == run / "checkpoints" / "best.ckpt"
    (run / "checkpoints" / "best.ckpt").unlink()
    assert find_checkpoint(str(run), "best", "latest") == run / "checkpoints" / "latest.ckpt"


def test_a_run_that_is_missing_is_refused_by_its_path(tmp_path):
    with pytest.raises(CheckpointError, match=f"no run or checkpoint at {tmp_path / 'nowhere'}"):
        find_checkpoint(tmp_path / "nowhere", "latest")


def test_a_folder_without_the_checkpoint_is_refused_by_the_names_it_should_hold(run, tmp_path):
    (run / "checkpoints" / "latest.ckpt").unlink()
    with pytest.raises(CheckpointError, match=r"holds no latest\.ckpt; the run has not saved a checkpoint yet"):
        find_checkpoint(run, "latest")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"holds no best\.ckpt or latest\.ckpt"):
        find_checkpoint(tmp_path / "empty", "best", "latest")


def test_a_runs_model_is_its_best_one(run):
    best, latest = (run / "checkpoints" / f"{name}.ckpt" for name in ("best", "latest"))
    assert find_model(run) == best
    assert find_model(latest) == latest


@pytest.mark.parametrize(("result", "ended"), [('{"score": null}', True), ('{"score": 0.5}', False), ("{", False)])
def test_without_a_best_one_it_is_the_latest_state_of_a_run_that_ended_without(run, result, ended):
    best, latest = (run / "checkpoints" / f"{name}.ckpt" for name in ("best", "latest"))
    best.unlink()
    (run / "result.json").write_text(result)
    if ended:
        assert find_model(run) == latest
    else:
        with pytest.raises(CheckpointError, match=r"holds no best\.ckpt; .*, name its file: .*latest"):
            find_model(run)


def test_latest_is_the_run_that_saved_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="there is no run in runs/ yet"):
        find_model("latest")
    for number, place in enumerate(("a/1", "sweep/job", "b/2")):
        state = tmp_path / "runs" / place / "checkpoints" / "best.ckpt"
        state.parent.mkdir(parents=True)
        state.touch()
        os.utime(state.parent, (number, 10 - number))
    assert find_model("latest") == Path("runs/a/1/checkpoints/best.ckpt")
    assert run_folder("latest") == Path("runs/a/1")
    with pytest.raises(CheckpointError, match=r"runs is a folder of runs; name one of them: runs/a/1, runs/s"):
        find_model("runs")
    (tmp_path / "latest" / "checkpoints").mkdir(parents=True)
    (tmp_path / "latest" / "checkpoints" / "best.ckpt").touch()
    assert find_model("latest") == Path("latest/checkpoints/best.ckpt")
