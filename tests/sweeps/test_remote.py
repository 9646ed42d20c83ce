"""A supervisor on whatever machine: its job ends with it, and when it is told to."""

import os
import signal
import subprocess
import sys

import pytest
from stub_sweep import COMMAND, frozen, run_jobs
from test_schedule import lines, until

from vitlab.atomic_files import is_alive
from vitlab.sweeps.folder import STOP
from vitlab.sweeps.local import Local
from vitlab.sweeps.slurm import Slurm

CODE = """
import sys
from pathlib import Path
from vitlab.sweeps.remote import Supervisor
Supervisor(Path(sys.argv[1]), sys.argv[2], sys.argv[3:], 1, {"VITLAB_DATA": "there"})()
"""


def supervised(sweep, name):
    return subprocess.Popen([sys.executable, "-c", CODE, str(sweep.path), name, *COMMAND])


@pytest.fixture
def sweep(tmp_path):
    return frozen(tmp_path / "sweep", ["a", "b_sleep-60"])


def test_a_job_is_done_and_noted(sweep):
    assert supervised(sweep, "a").wait(30) == 0
    assert (sweep.state("a").status, sweep.state("a").score) == ("done", 1)
    assert f"{os.getcwd()} there" in (sweep.home("a") / "console.log").read_text()
    assert not list(sweep.path.rglob(".lock"))
    assert supervised(sweep, "a").wait(30) == 0  # and not again
    assert len(lines(sweep.path / "a" / "starts")) == 1


@pytest.mark.slow
def test_a_job_ends_with_its_supervisor(sweep):
    supervisor = supervised(sweep, "b_sleep-60")
    until(lambda: lines(sweep.path / "b_sleep-60" / "starts"))
    job = int(lines(sweep.path / "b_sleep-60" / "starts")[0])
    supervisor.kill()
    supervisor.wait()
    until(lambda: not is_alive(job))
    assert sweep.state("b_sleep-60").refresh().status == "lost"


def test_a_job_is_stopped_by_a_file_beside_its_state(sweep):
    supervisor = supervised(sweep, "b_sleep-60")
    until(lambda: lines(sweep.path / "b_sleep-60" / "starts"))
    (sweep.home("b_sleep-60") / STOP).touch()
    assert supervisor.wait(30) == 0
    state = sweep.state("b_sleep-60")
    assert (state.status, state.reason, state.exit_status) == ("killed", "SIGTERM", 128 + signal.SIGTERM)


def test_a_job_that_is_stopped_before_it_began_does_not_begin(sweep):
    (sweep.home("a") / STOP).touch()
    assert supervised(sweep, "a").wait(30) == 0
    assert sweep.state("a").status == "waiting"
    assert not (sweep.path / "a").exists()


def test_one_job_has_one_supervisor(sweep):
    """The second waits until the first is gone, and finds that nothing is left to do."""
    first = supervised(sweep, "a")
    second = supervised(sweep, "a")
    assert (first.wait(30), second.wait(30)) == (0, 0)
    assert len(lines(sweep.path / "a" / "starts")) == 1
    assert sweep.state("a").attempts == 1


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "waits"), [(Local, True), (Slurm, False)])
def test_a_job_of_an_earlier_start_keeps_its_slot_of_the_same_engine(tmp_path, engine, waits):
    """SLURM and Ray go on with jobs whose sweeper was killed; the next start runs no more at once than it has slots.
    Here one whose jobs are local, which stand for those of any engine."""
    sweep = frozen(tmp_path / "sweep", ["a_sleep-3", "b"])
    sweep.write_engine("a_sleep-3", engine.__name__)
    supervisor = supervised(sweep, "a_sleep-3")
    until(lambda: lines(sweep.path / "a_sleep-3" / "starts"))
    assert {state.status for state in run_jobs(sweep, slots=1).values()} == {"done"}
    supervisor.wait()
    ended, started = (sweep.path / path for path in ("a_sleep-3/ends", "b/starts"))
    assert (started.stat().st_mtime > ended.stat().st_mtime) == waits
