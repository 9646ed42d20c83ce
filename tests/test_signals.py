"""A signal ends a run with its state saved and 128 + its number, under a scheduler as elsewhere."""

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import BARE, SRC, TINY, chosen, evaluated, finished
from test_resume import same_tensors

from vitlab.checkpoints import file

OPTIONS = [
    *BARE,
    "data.split.labels_per_class=26",
    "global_batch_size=26",
    "trainer.max_epochs=1",
    "mixing=mixup",
    "trainer.log_every_n_steps=4",
]
SLURM = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "x"}
SLURM |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
MEASURED = ("step", "train/loss", "train/acc1", "train/acc5", "train/grad_norm", "train/lr", "val/loss", "val/acc1")


@pytest.fixture
def sent(monkeypatch):
    """Let the process get a signal in its 6th step."""
    from vitlab.tasks import Classification

    step = Classification.training_step

    def arm(number):
        def signalled(self, batch, batch_idx):
            if self.global_step == 5:
                os.kill(os.getpid(), number)
            return step(self, batch, batch_idx)

        monkeypatch.setattr(Classification, "training_step", signalled if number else step)

    return arm


def rows(folder):
    with open(folder / "metrics.csv", newline="") as lines:
        return [{name: row.get(name) for name in MEASURED} for row in csv.DictReader(lines)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbed."""
    return finished(tmp_path_factory.mktemp("undisturbed") / "whole", *OPTIONS)


RARE = [
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.ci]) for name in ("SIGUSR1", "SIGINT", "SIGHUP", "SIGUSR2")
]


@pytest.mark.parametrize("name", ["SIGTERM", *RARE])
def test_it_is_saved_and_gone_on_with_row_for_row(cli, tmp_path, sent, monkeypatch, whole, name):
    """Between two log entries: also what they sum up is gone on with."""
    number = signal.Signals[name]
    for key, value in SLURM.items() if number == signal.SIGUSR1 else ():
        monkeypatch.setenv(key, value)
    sent(number)
    before = signal.signal(number, signal.SIG_DFL)  # also where these tests run under nohup
    stopped = cli("train", *OPTIONS, folder="run")
    signal.signal(number, before)
    sent(None)
    assert stopped.status == 128 + number, stopped.err
    advice = stopped.out.splitlines()[-1]
    assert advice == "stopped, state saved; go on: python src/train.py resume=run".replace("src", str(SRC))
    assert advice in (tmp_path / "run" / "train.log").read_text()
    assert not list(tmp_path.glob("run/hpc_ckpt*"))
    assert cli("train", "resume=run", tiny=False).status == 0
    assert same_states(whole, tmp_path / "run")
    assert rows(tmp_path / "run") == rows(whole)


def same_states(*folders):
    whole, run = (file.read(folder / "checkpoints/latest.ckpt") for folder in folders)
    best = [file.read(folder / "checkpoints/best.ckpt") for folder in folders]
    results = [json.loads((folder / "result.json").read_text())["test"] for folder in folders]
    kept = ("state_dict", "optimizer_states", "lr_schedulers", "sums", "loops", "global_step")
    same = same_tensors(best[0]["state_dict"], best[1]["state_dict"]) and results[0] == results[1]
    return same and all(same_tensors(whole[key], run[key]) for key in kept)


def test_one_that_comes_to_the_workers_of_a_loader_too_is_told_once(cli, monkeypatch):
    """As Ctrl-C does."""
    from vitlab.tasks import Classification

    step, workers = Classification.training_step, []

    def signalled(self, batch, batch_idx):
        if self.global_step == 1:
            workers[:] = multiprocessing.active_children()
            for worker in workers:
                os.kill(worker.pid, signal.SIGINT)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classification, "training_step", signalled)
    run = cli("train", *OPTIONS, "data.loading.num_workers=2")
    assert len(workers) >= 2
    assert run.status == 128 + signal.SIGINT, run.err
    assert run.out.count("stopping after this step") == 1


def test_a_signal_that_is_to_be_ignored_is(cli, sent):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        sent(signal.SIGHUP)
        assert cli("train", *OPTIONS, folder="run").status == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_what_lightning_left_under_slurm_is_not_tested(cli, tmp_path, short_run, monkeypatch):
    """A state that lies in an earlier run's folder would be loaded in place of the best model."""
    shutil.copytree(short_run, tmp_path / "run")
    shutil.copy(tmp_path / "run/checkpoints/latest.ckpt", tmp_path / "run/hpc_ckpt_1.ckpt")
    for key, value in SLURM.items():
        monkeypatch.setenv(key, value)
    assert cli("train", "resume=run", "trainer.max_epochs=3", tiny=False).status == 0
    assert cli("evaluate", "run=run").status == 0
    result = json.loads((tmp_path / "run/result.json").read_text())["test"]
    again = evaluated(tmp_path / "run")
    assert {name: again[name] for name in result} == result
    assert not list(tmp_path.glob("run/hpc_ckpt*"))


@pytest.mark.slow
def test_two_ranks_that_slurm_started_stop_together(tmp_path):
    """SIGUSR1 to both, as before a time limit."""
    port = str(20000 + os.getpid() % 20000)
    options = [*TINY, *BARE, "trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "global_batch_size=128"]
    options += ["trainer.max_epochs=500", "callbacks.interruption.every_n_steps=2", "hydra.run.dir=run"]
    ranks = []
    for rank in range(2):
        own = {**SLURM, "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_PROCID": str(rank)}
        own |= {"SLURM_LOCALID": str(rank), "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1", "SLURM_NNODES": "1"}
        command = [sys.executable, str(SRC / "train.py"), *chosen(*options)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        ranks.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **own}, **pipes))
    deadline = time.monotonic() + 240
    while not (tmp_path / "run/metrics.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    for rank in ranks:
        rank.send_signal(signal.SIGUSR1)
    told = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [138, 138], told
    assert (tmp_path / "run/checkpoints/latest.ckpt").is_file()
