"""Slots on one machine: their threads, and GPUs that sweeps share without meeting on one."""

import os
import subprocess
import sys

import pytest
from stub_sweep import COMMAND, frozen

from vitlab.errors import VitlabError
from vitlab.sweeps.gpus import GpuClaims, list_gpus
from vitlab.sweeps.local import Local
from vitlab.sweeps.schedule import JobSource, Schedule
from vitlab.sweeps.stop import Stop

OPTIONS = {"slots": None, "gpus_per_slot": 1, "threads": None, "preload": False, "modules": []}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # of the locks
    monkeypatch.delenv("OMP_NUM_THREADS")


def engine(sweep, **changes):
    return Local(**{**OPTIONS, **changes}, sweep=sweep.path)


@pytest.mark.parametrize(
    ("visible", "found"), [("0,1", ["0", "1"]), ("", []), ("GPU-abc, GPU-d", ["GPU-abc", "GPU-d"])]
)
def test_what_a_user_has_hidden_is_not_there(monkeypatch, visible, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert list_gpus() == found


def test_gpus_are_counted_by_the_driver(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == []
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0\necho 1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert list_gpus() == ["0", "1"]


def test_a_gpu_belongs_to_one_job_of_one_sweep(tmp_path):
    mine = GpuClaims(["0", "1", "2"])
    assert mine.take(2) == ["0", "1"]
    code = "from vitlab.sweeps.gpus import GpuClaims; import tempfile; "
    code += f"tempfile.tempdir = {str(tmp_path)!r}; c = GpuClaims(['0', '1', '2']); print(c.take(2), c.take(1))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[] ['2']\n"
    mine.release(["0"])
    assert mine.take(2) == ["0", "2"]


def test_each_job_sees_its_own_gpus_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    sweep = frozen(tmp_path / "sweep", [f"job{number}" for number in range(4)])
    with engine(sweep, gpus_per_slot=2) as entered, Stop() as stop:
        assert (entered.slots, entered.threads) == (2, max(1, len(os.sched_getaffinity(0)) // 2))
        Schedule(sweep, entered, COMMAND, JobSource(), []).run(stop)
    said = [(sweep.home(job.name) / "console.log").read_text().splitlines()[-1] for job in sweep.jobs()]
    assert {line.split()[0] for line in said} == {"4,5", "6,7"}
    assert {line.split()[1] for line in said} == {str(entered.threads)}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"gpus_per_slot": 3}, "gpus_per_slot is 3, but this machine has 2"),
        ({"slots": 3}, "there are GPUs for only 2"),
    ],
)
def test_slots_that_cannot_be_are_refused(tmp_path, monkeypatch, changes, error):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError, match=error):
        engine(frozen(tmp_path / "sweep", []), **changes)


def test_without_a_gpu_the_cores_are_one_slot(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = engine(frozen(tmp_path / "sweep", []))
    assert (made.slots, made.threads) == (1, len(os.sched_getaffinity(0)))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert engine(frozen(tmp_path / "sweep", [])).threads == "3"


def test_a_fork_server_that_cannot_start_is_told_and_not_tried_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    sweep = frozen(tmp_path / "sweep", ["a"])
    with (
        engine(sweep, gpus_per_slot=0) as entered,
        Stop() as stop,
        pytest.raises(VitlabError, match=r"see .*fork_server\.log"),
    ):
        Schedule(sweep, entered, COMMAND, JobSource(), []).run(stop)
