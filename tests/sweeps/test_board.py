"""What is told of a sweep: live on a terminal, by lines elsewhere."""

import io
import json

import pytest
from rich.console import Console
from stub_sweep import sweep_of_each_status

from vitlab.sweeps.board import Board, build_page
from vitlab.sweeps.folder import State


@pytest.fixture
def sweep(tmp_path):
    return sweep_of_each_status(tmp_path / "runs" / "mine")


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


def test_a_key_that_is_not_known_is_passed_over(sweep):
    path = sweep.home("done") / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    assert len(sweep.jobs()) == 7
