"""python src/sweeps.py, as a user runs it."""

import os

import pytest
from stub_sweep import frozen, sweep_of_each_status

from vitlab.errors import CheckpointError
from vitlab.programs import sweeps
from vitlab.programs.sweeps import find_sweep, find_sweeps
from vitlab.sweeps.folder import State


@pytest.fixture
def sweep(tmp_path):
    return sweep_of_each_status(tmp_path / "runs" / "mine")


def test_the_command_tells_of_one_sweep_and_of_all(cli, sweep):
    one = cli("sweeps", "mine")
    assert one.status == 0
    assert "1 running, 2 lost, 1 failed" in one.out
    assert cli("sweeps", str(sweep.path)).out.splitlines()[0] == one.out.splitlines()[0]
    assert cli("sweeps").out == "runs/mine: 1 running, 2 lost, 1 failed, 1 killed, 1 waiting, 1 done\n"
    wrong = cli("sweeps", "mien")
    assert wrong.status == 4
    assert "did you mean mine?" in wrong.err


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        ("state.json", ["", "[]", "null", '{"status": "nonsense"}', '{"heartbeat": "a"}', '{"score": "a"}', None]),
        ("job.json", ["", "[]", "{}", '{"number": "a"}', None]),
        ("sweep.json", ["", "[]", '{"format": 1}']),
    ],
)
def test_a_damaged_file_is_named_and_hides_no_other_sweep(cli, tmp_path, sweep, file, contents):
    frozen(tmp_path / "runs" / "whole", ["a"])
    path = (sweep.path if file == "sweep.json" else sweep.home("done")) / file
    for content in contents:
        path.unlink()
        path.mkdir() if content is None else path.write_text(content)
        run = cli("sweeps", "mine")
        assert run.status == 4, content
        assert f"{file} is damaged" in run.err
        told = cli("sweeps").out.splitlines()
        assert len(told) == 2
        assert any(f"{file} is damaged" in line for line in told)
        assert "runs/whole: 1 waiting" in told


def test_the_command_watches_until_no_job_is_left_to_run(cli, sweep, monkeypatch):
    looks = []

    def pause(seconds):
        looks.append(seconds)
        for name in ["running"] if len(looks) == 1 else [job.name for job in sweep.jobs()]:
            sweep.write_state(name, State(status="done"))

    monkeypatch.setattr("vitlab.programs.sweeps.time.sleep", pause)
    run = cli("sweeps", "mine", "watch=true")
    assert run.status == 0
    assert len(looks) == 2  # one job was waiting still
    assert "7 done" in run.out


def test_pictures_of_too_few_jobs_are_refused(cli, sweep):
    run = cli("sweeps", "mine", "pictures=true")
    assert run.status == 2
    assert "pictures need at least 4 finished jobs" in run.err


@pytest.mark.ci
@pytest.mark.slow
def test_pictures_of_any_sweep(cli, tmp_path):
    sweep = frozen(tmp_path / "runs" / "mine", [f"job{number}" for number in range(5)])
    for job in sweep.jobs():
        sweep.write_state(job.name, State(status="done", score=job.number / 5))
    run = cli("sweeps", "mine", "pictures=true")
    assert run.status == 0, run.err
    for name in ("importance.png", "parallel.png"):
        assert (sweep.path / name).read_bytes().startswith(b"\x89PNG")


def test_sweeps_are_found_in_runs_and_a_folder_below_the_latest_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_sweeps() == []
    for age, name in enumerate(["a", "b/deeper", "c", "d/e/too_deep"]):
        path = frozen(tmp_path / "runs" / name, ["one"]).path / "sweep.json"
        os.utime(path, (1e9 - age,) * 2)
    assert [str(one.path) for one in find_sweeps()] == ["runs/a", "runs/b/deeper", "runs/c"]


def test_a_sweep_has_a_name_in_runs_or_a_folder_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweeps, "RUNS", tmp_path / "runs")
    for place in ("runs/mine", "mine", "elsewhere/other"):
        frozen(tmp_path / place, ["one"])
    assert find_sweep("mine").path == tmp_path / "runs" / "mine"
    assert str(find_sweep("elsewhere/other").path) == "elsewhere/other"
    with pytest.raises(CheckpointError, match=r"there is no sweep minne.*mine"):
        find_sweep("minne")
