"""Jobs of a sweep: each is done once, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps.stub_sweep import frozen, work_off

PROGRAM = [sys.executable, str(Path(__file__).with_name("stub_sweep.py"))]


def lines(path):
    return path.read_text().split() if path.is_file() else []


def statuses(states):
    return {name: state.status for name, state in states.items()}


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def supervisor(sweep, name):
    until(lambda: sweep.state(name).status == "running" and lines(sweep.path / name / "starts"))
    return sweep.state(name).pid


def test_every_job_is_done_once_and_not_again(tmp_path):
    names = [f"job{number}" for number in range(6)]
    sweep = frozen(tmp_path / "sweep", names)
    states = work_off(sweep)
    assert statuses(states) == dict.fromkeys(names, "done")
    assert {state.score for state in states.values()} == {4}
    assert work_off(sweep) == states
    assert all(len(lines(sweep.path / name / "starts")) == 1 for name in names)
    assert (sweep.home("job0") / "console.log").read_text() == "this is job0\n"
    assert not list(sweep.path.rglob(".lock"))


def test_a_job_that_fails_is_tried_once_more_and_once_again_in_each_later_start(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_fail", "b_fail-once", "c"])
    states = work_off(sweep)
    assert statuses(states) == {"a_fail": "failed", "b_fail-once": "done", "c": "done"}
    assert states["a_fail"].reason == "ConfigError: it was told to fail"
    assert (states["a_fail"].attempts, states["a_fail"].exit_status) == (2, 2)
    assert work_off(sweep)["a_fail"].attempts == 3


def test_a_job_whose_run_was_removed_is_done_again(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a", "b"])
    work_off(sweep)
    (sweep.path / "a" / "result.json").unlink()
    states = work_off(sweep)
    assert [states[name].attempts for name in "ab"] == [2, 1]


def test_a_job_that_is_killed_is_gone_on_with(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-1", "b"])
    killed = []

    class Killer:
        def changed(self, job, state):
            pass

    with subprocess.Popen([*PROGRAM, str(sweep.path), "1"], stdout=subprocess.PIPE, text=True) as program:
        supervisor(sweep, "a_sleep-1")
        killed = int(lines(sweep.path / "a_sleep-1" / "starts")[0])
        os.kill(killed, signal.SIGKILL)
        told = program.communicate(timeout=30)[0]
    assert told.count("done") == 2
    assert sweep.state("a_sleep-1").attempts == 2


def test_a_job_that_is_killed_again_and_again_is_given_up(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-60", "b"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "1"], stdout=subprocess.PIPE, text=True) as program:
        for number in range(3):
            until(lambda number=number: len(lines(sweep.path / "a_sleep-60" / "starts")) > number)
            os.kill(int(lines(sweep.path / "a_sleep-60" / "starts")[-1]), signal.SIGKILL)
        program.communicate(timeout=30)
    state = sweep.state("a_sleep-60")
    assert (state.status, state.reason, state.attempts) == ("killed", "SIGKILL", 3)
    assert sweep.state("b").status == "done"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_sweeper_is_killed_its_jobs_end_and_are_gone_on_with(tmp_path, number):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-2", "b_sleep-2", "c"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "2"], stdout=subprocess.PIPE, text=True) as program:
        supervisor(sweep, "a_sleep-2")
        supervisor(sweep, "b_sleep-2")
        program.send_signal(number)
        program.wait(30)
    until(lambda: not any(sweep.state(name).supervised for name in ("a_sleep-2", "b_sleep-2")))
    assert [sweep.state(name).status for name in ("a_sleep-2", "b_sleep-2", "c")] == ["killed", "killed", "waiting"]
    assert sweep.state("a_sleep-2").reason == "SIGTERM"
    states = work_off(sweep)
    assert statuses(states) == dict.fromkeys(states, "done")
    assert all(len(lines(sweep.path / name / "ends")) == 1 for name in states)


def test_when_a_supervisor_is_killed_its_jobs_are_waited_for(tmp_path):
    """They run on, and nobody starts them beside themselves."""
    sweep = frozen(tmp_path / "sweep", ["a_sleep-2", "b"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "2"], stdout=subprocess.PIPE, text=True) as program:
        os.kill(supervisor(sweep, "a_sleep-2"), signal.SIGKILL)
        told = program.communicate(timeout=30)[0]
    assert told.count("done") == 2
