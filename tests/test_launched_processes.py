"""Processes that srun or torchrun has started, by stand-ins that end none of them: when one of two refuses, is killed
or is stopped, and no exception reaches the other one, as with NCCL, that one ends within a minute by itself."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from socket import gethostname

import pytest
from conftest import FEW, SRC
from two_processes import ENTRY, TWO, sentences, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = """
from vitlab.errors import DataError
from vitlab.tasks import Task
rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID")))
def hang():
    open(f"here{{rank}}", "w").close()
    time.sleep(600)
def fail(error):
    while not os.path.exists(f"here{{1 - rank}}"):
        time.sleep(0.1)
    raise error
acts = {{"hang": hang, "data": lambda: fail(DataError("a file is bad")), "disk": lambda: fail(OSError(28, "", "x"))}}
own = Task.{method}
def acting(self, *arguments):
    if "{method}" != "training_step" or self.global_step == 2:
        acts[{acts}[rank]]()
    return own(self, *arguments)
Task.{method} = acting
"""


def environment(launcher, rank, port):
    if launcher == "torchrun":
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        own |= {"GROUP_RANK": 0, "LOCAL_WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "1"}
    else:
        own = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURM_NTASKS": 2}
        own |= {"SLURM_NTASKS_PER_NODE": 2, "SLURM_NNODES": 1, "SLURM_NODELIST": "localhost"}
        own |= {"SLURM_JOB_ID": port, "SLURM_JOB_NAME": "vitlab"}
    own["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # as the command sets it before torch is loaded, which the patch loads sooner
    return os.environ | {name: str(value) for name, value in own.items()}


@contextmanager
def launched(folder, launcher, acts, method="training_step"):
    """Two processes; each hangs, or fails, in a method of the task."""
    patch = SOURCE.format(method=method, acts=acts)
    (folder / "entry.py").write_text(ENTRY.format(src=str(SRC), patch=patch), encoding="utf-8")
    words = [*TWO, *FEW, "trainer.max_steps=4", "hydra.run.dir=run"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(folder / "err", "w") as err:
        ranks = [
            subprocess.Popen(
                [sys.executable, "entry.py", *words],
                cwd=folder,
                stdout=err,
                stderr=err,
                env=environment(launcher, rank, port),
            )
            for rank in range(2)
        ]
    try:
        yield ranks
    finally:
        for process in ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def end_of(process, folder):
    """The status with which it ends, and the seconds until then."""
    began = time.monotonic()
    try:
        return process.wait(400), time.monotonic() - began
    except subprocess.TimeoutExpired:
        raise AssertionError((folder / "err").read_text()) from None


@pytest.mark.parametrize(
    ("launcher", "rank", "act", "method", "status"),
    [
        ("torchrun", 1, "data", "training_step", 3),
        ("srun", 1, "disk", "plan", 6),  # before the processes form a group
        ("srun", 0, "data", "training_step", 3),
    ],
)
def test_a_refusal_ends_all_others_with_its_status(tmp_path, launcher, rank, act, method, status):
    acts = ["hang", act] if rank else [act, "hang"]
    with launched(tmp_path, launcher, acts, method) as ranks:
        assert end_of(ranks[rank], tmp_path)[0] == status
        ended, seconds = end_of(ranks[1 - rank], tmp_path)
    assert (ended, seconds < 60) == (status, True), (tmp_path / "err").read_text()
    refused, lost = sorted(sentences(tmp_path), key=lambda sentence: "another process" in sentence)
    assert "another process" not in refused
    assert f"another process of this run has ended (rank {rank} on {gethostname()})" in lost


@pytest.mark.parametrize(
    ("launcher", "rank", "number"),
    [("srun", 1, signal.SIGKILL), ("torchrun", 1, signal.SIGSTOP), ("srun", 0, signal.SIGKILL)],
)
def test_a_lost_process_is_named_by_all_others(tmp_path, launcher, rank, number):
    with launched(tmp_path, launcher, ["hang", "hang"]) as ranks:
        until(lambda: all((tmp_path / f"here{one}").exists() for one in range(2)), 250)
        ranks[rank].send_signal(number)
        status, seconds = end_of(ranks[1 - rank], tmp_path)
    assert (status, seconds < 60) == (7, True), (tmp_path / "err").read_text()
    (sentence,) = sentences(tmp_path)
    assert f"another process of this run has ended (rank {rank}" in sentence
