"""What is told of a sweep: live on a terminal, by lines elsewhere, and by python src/sweeps.py."""

import io
import json
import os
import socket
import time

import pytest
from rich.console import Console
from stub_sweep import frozen

from vitlab.sweeps.board import Board, build_page
from vitlab.sweeps.folder import State


@pytest.fixture
def sweep(tmp_path):
    """A sweep with a job of each status."""
    sweep = frozen(tmp_path / "runs" / "mine", ["done", "running", "failed", "lost", "far", "killed", "waiting"])
    here = {"host": socket.gethostname(), "attempts": 1, "started": time.time() - 100}
    states = {
        "done": State(status="done", score=0.75, seconds=12.0, attempts=2),
        "running": State(status="running", pid=os.getpid(), heartbeat=time.time(), **here),
        "failed": State(status="failed", reason="ConfigError: no", attempts=2),
        "lost": State(status="running", pid=2**22 + 1, heartbeat=time.time(), **here),  # no process has this number
        "far": State(status="running", pid=1, heartbeat=time.time() - 100, **{**here, "host": "elsewhere"}),
        "killed": State(status="killed", reason="SIGTERM", attempts=1),
    }
    for name, state in states.items():
        sweep.write_state(name, state)
    return sweep


def shown(what):
    console = Console(file=io.StringIO(), width=150)
    console.print(what)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_the_table_says_what_each_job_is_at(sweep):
    counts, _, *rows = shown(build_page(sweep.jobs(), sweep.states()))
    assert " ".join(counts) == "1 running, 2 lost, 1 failed, 1 killed, 1 waiting, 1 done"
    assert [row[1] for row in rows] == ["1", "3", "4", "2", "5", "6", "0"]  # the value of n, which varies
    assert [row[2] for row in rows] == ["running", "lost", "lost", "failed", "killed", "waiting", "done"]
    assert rows[3][2:] == ["failed", "2", "0", "ConfigError:", "no"]
    assert rows[-1][2:] == ["done", "0.7500", "2", "12"]
    assert len(shown(build_page(sweep.jobs(), sweep.states(), 2))) == 4


def test_lines_tell_of_each_change(sweep, capsys):
    job = sweep.jobs()[-1]
    with Board(sweep.jobs(), sweep.states()) as board:
        for state in (State(status="running"), State(status="failed", reason="so"), State(status="done", score=0.5)):
            board.update(job, state)
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "1 of 7 done; running waiting",
        "1 of 7 done; failed waiting: so",
        "2 of 7 done; done waiting, m 0.5000 in 0 s",
    ]


def test_on_a_terminal_the_table_is_live(sweep):
    board = Board(sweep.jobs(), sweep.states())
    board.console = Console(file=io.StringIO(), force_terminal=True, width=100, height=12)
    board.live.console = board.console
    with board:
        board.update(sweep.jobs()[-1], State(status="done", score=0.5))
        board.live.refresh()
    text = board.console.file.getvalue()
    assert "2 done" in text
    assert "ConfigError: no" in text


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


def test_a_key_that_is_not_known_is_passed_over(sweep):
    path = sweep.home("done") / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    assert len(sweep.jobs()) == 7


def test_the_command_watches_until_no_job_is_left_to_run(cli, sweep, monkeypatch):
    looks = []

    def pause(seconds):
        looks.append(seconds)
        for job in sweep.jobs():
            sweep.write_state(job.name, State(status="done"))

    monkeypatch.setattr("vitlab.programs.sweeps.time.sleep", pause)
    run = cli("sweeps", "mine", "watch=true")
    assert run.status == 0
    assert len(looks) == 1
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
