"""Jobs of a sweep: each is done once, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import mostly_slow
from stub_sweep import frozen, run_jobs

from vitlab.sweeps.local import Local
from vitlab.sweeps.start import lock_sweep

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
    states = run_jobs(sweep)
    assert statuses(states) == dict.fromkeys(names, "done")
    assert {state.score for state in states.values()} == {4}
    assert run_jobs(sweep) == states
    assert all(len(lines(sweep.path / name / "starts")) == 1 for name in names)
    assert (sweep.home("job0") / "console.log").read_text().startswith("this is job0\n")
    assert not list(sweep.path.rglob(".lock"))


def test_a_job_that_fails_is_tried_once_more_and_once_again_in_each_later_start(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_fail", "b_fail-once", "c"])
    states = run_jobs(sweep)
    assert statuses(states) == {"a_fail": "failed", "b_fail-once": "done", "c": "done"}
    assert states["a_fail"].reason == "ConfigError: it was told to fail"
    assert (states["a_fail"].attempts, states["a_fail"].exit_status) == (2, 2)
    assert run_jobs(sweep)["a_fail"].attempts == 3


def test_a_job_whose_run_was_removed_is_done_again(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a", "b"])
    run_jobs(sweep)
    (sweep.path / "a" / "result.json").unlink()
    states = run_jobs(sweep)
    assert [states[name].attempts for name in "ab"] == [2, 1]


def test_a_job_that_is_killed_is_gone_on_with(tmp_path):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-1", "b"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "1"], stdout=subprocess.PIPE, text=True) as program:
        supervisor(sweep, "a_sleep-1")
        killed = int(lines(sweep.path / "a_sleep-1" / "starts")[0])
        os.kill(killed, signal.SIGKILL)
        told = program.communicate(timeout=30)[0]
    assert program.returncode == 0
    assert "killed a_sleep-1: SIGKILL" in told
    assert [sweep.state(name).attempts for name in ("a_sleep-1", "b")] == [2, 1]


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


@pytest.mark.parametrize("number", mostly_slow([signal.SIGKILL, signal.SIGTERM]))
def test_when_the_sweeper_is_killed_its_jobs_end_and_are_gone_on_with(tmp_path, number):
    sweep = frozen(tmp_path / "sweep", ["a_sleep-2", "b_sleep-2", "c"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "2"], stdout=subprocess.PIPE, text=True) as program:
        supervisor(sweep, "a_sleep-2")
        supervisor(sweep, "b_sleep-2")
        program.send_signal(number)
        assert program.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: not any(sweep.state(name).is_supervised for name in ("a_sleep-2", "b_sleep-2")))
    assert [sweep.state(name).status for name in ("a_sleep-2", "b_sleep-2", "c")] == ["killed", "killed", "waiting"]
    assert sweep.state("a_sleep-2").reason == "SIGTERM"
    states = run_jobs(sweep)
    assert statuses(states) == dict.fromkeys(states, "done")
    assert all(len(lines(sweep.path / name / "ends")) == 1 for name in states)


@pytest.mark.slow
def test_when_a_supervisor_is_killed_its_jobs_are_waited_for(tmp_path):
    """They run on, and nobody starts them beside themselves."""
    sweep = frozen(tmp_path / "sweep", ["a_sleep-2", "b"])
    with subprocess.Popen([*PROGRAM, str(sweep.path), "2"], stdout=subprocess.PIPE, text=True) as program:
        os.kill(supervisor(sweep, "a_sleep-2"), signal.SIGKILL)
        told = program.communicate(timeout=30)[0]
    assert program.returncode == 0
    assert "lost a_sleep-2: its supervisor is gone" in told
    assert len(lines(sweep.path / "a_sleep-2" / "starts")) == len(lines(sweep.path / "a_sleep-2" / "ends")) == 1


def test_two_sweeps_at_once_do_not_disturb_each_other(tmp_path):
    names = [f"job{number}_sleep-0.1" for number in range(6)]
    sweeps = [frozen(tmp_path / name, names) for name in ("one", "other")]
    programs = [subprocess.Popen([*PROGRAM, str(sweep.path), "2"]) for sweep in sweeps]
    assert [program.wait(60) for program in programs] == [0, 0]
    for sweep in sweeps:
        assert statuses({name: sweep.state(name) for name in names}) == dict.fromkeys(names, "done")
        assert all(len(lines(sweep.path / name / "starts")) == 1 for name in names)


def test_one_sweep_has_one_sweeper(tmp_path):
    with lock_sweep(tmp_path / "sweep", new=False, break_lock=False):
        code = "import sys; from pathlib import Path; from vitlab.sweeps.start import lock_sweep; "
        code += "lock_sweep(Path(sys.argv[1]), new=False, break_lock=False).__enter__()"
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "sweep")], capture_output=True, text=True, check=False
        )
    assert "in use by process" in other.stderr


@pytest.mark.ci
@pytest.mark.slow
def test_the_fork_server_has_one_thread_and_no_device(tmp_path):
    """What it imports starts no thread pool and opens no GPU, neither of which a fork survives."""
    engine = Local(slots=1, gpus_per_slot=0, threads=2, preload=True, sweep=tmp_path, modules=["vitlab.programs.train"])
    with engine:
        until(lambda: engine.poll(0.1) or engine.ready, 120)
        process = Path("/proc", str(engine.server.pid))
        assert "libtorch" in (process / "maps").read_text()
        assert len(list((process / "task").iterdir())) == 1
        assert not [path for path in (process / "fd").iterdir() if "nvidia" in os.readlink(path)]
