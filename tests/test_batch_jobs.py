"""The batch script of docs/machines.md, by stand-ins of srun and scontrol: SLURM itself is not here."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from socket import gethostname

import pytest
from conftest import BARE, SRC, TINY, chosen
from test_signals import same_states
from two_processes import sentences, until

from vitlab.data.loading import loader

PAGE = (SRC.parent / "docs" / "machines.md").read_text(encoding="utf-8")
SCRIPT = next(block for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if "#SBATCH" in block)
SRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
tasks = []
for rank in range(2):  # a task on each of two nodes
    own = {{"SLURM_PROCID": str(rank), "SLURM_LOCALID": "0", "SLURM_NODEID": str(rank)}}
    tasks.append(subprocess.Popen([sys.executable, *words[1:]], env=os.environ | own))
with open("tasks", "w") as file:
    file.write(" ".join(str(task.pid) for task in tasks) + " ")
statuses = [task.wait() for task in tasks]
os.remove("tasks")
sys.exit(max(status if status >= 0 else 128 - status for status in statuses))
"""
SCONTROL = """#!/bin/sh
echo "$@" >> requeued
"""
WORDS = chosen(*TINY, *BARE, "trainer=ddp", "trainer.accelerator=cpu", "data.split.labels_per_class=26")
WORDS += ["callbacks.interruption.every_n_steps=1", "trainer.log_every_n_steps=1", "trainer.max_epochs=2"]
WORDS += ["seed=$SLURM_ARRAY_TASK_ID"]
SLOWER = """
import os, sys, time
sys.path.insert(0, {src!r})
from vitlab.distributed.environment import begin_process
begin_process()  # as train does before torch is loaded, which the next line does
from vitlab.tasks import Classification
step = Classification.training_step
def slower(self, batch, batch_idx):
    if self.global_step == 5 and not os.path.exists("requeued"):
        open("here", "a").write("x")
        while not os.path.exists("on"):
            time.sleep(0.05)
    return step(self, batch, batch_idx)
Classification.training_step = slower
import train
train.main()
"""


@contextmanager
def batch(folder, number):
    """The script as SLURM would run it, of two nodes with a task each; gives its process."""
    for name, content in {"srun": SRUN.format(python=sys.executable), "scontrol": SCONTROL}.items():
        (folder / name).write_text(content, encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(SLOWER.format(src=str(SRC)), encoding="utf-8")
    script = SCRIPT.replace("trainer=ddp", " ".join(WORDS)).replace("=8", "=1")
    (folder / "job").write_text(f"#!/bin/bash\n{script}", encoding="utf-8")
    own = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NAME": "vitlab", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"}
    own |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_NNODES": "2", "SLURM_NODELIST": "localhost", "SLURM_ARRAY_TASK_ID": "3"}
    own |= {"PATH": f"{folder}:{os.environ['PATH']}"}
    with open(folder / "err", "a") as err:
        job = subprocess.Popen(
            ["bash", "job"], cwd=folder, stderr=err, stdout=err, env={**os.environ, **own}, start_new_session=True
        )
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def tasks(folder):
    return [int(pid) for pid in (folder / "tasks").read_text().split()]


def both_in_mid_epoch(folder, job):
    until(lambda: ((folder / "here").exists() and (folder / "here").stat().st_size == 2) or job.poll() is not None, 200)
    assert job.poll() is None, (folder / "err").read_text()


def finished_job(folder, number):
    with batch(folder, number) as job:
        job.wait(250)
    (run,) = folder.glob("runs/*/*")
    assert (run / "result.json").is_file(), (folder / "err").read_text()
    return run


def test_the_script_gives_the_cores_of_a_task_to_sbatch_and_srun():
    """srun binds one core to a task unless it is told of more, and does not take it from sbatch since SLURM 22.05."""
    cores = int(re.search(r"#SBATCH.* --cpus-per-task=(\d+)", SCRIPT)[1])
    assert cores >= loader.ENOUGH_CORES
    assert "srun --cpus-per-task=$SLURM_CPUS_PER_TASK " in SCRIPT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_is_queued_again_after_usr1_and_ends_as_one_that_was_not(tmp_path):
    """One of an array of jobs, in one folder, which the first task names."""
    number = 1 + os.getpid() % 9000
    job_folder, other = tmp_path / "job", tmp_path / "undisturbed"
    for folder in (job_folder, other):
        folder.mkdir()
    with batch(job_folder, number) as job:
        both_in_mid_epoch(job_folder, job)
        for pid in tasks(job_folder):
            os.kill(pid, signal.SIGUSR1)
        (job_folder / "on").touch()
        job.wait(60)
    assert (job_folder / "requeued").read_text() == f"requeue {number}\n", (job_folder / "err").read_text()
    run = finished_job(job_folder, number)
    (other / "requeued").touch()
    assert same_states(finished_job(other, number + 500), run)
    assert "seed: 3\n" in (run / "config.yaml").read_text()
    assert [start["from_step"] for start in json.loads((run / "provenance.json").read_text())] == [0, 6]
    with open(run / "metrics.csv", newline="") as f:
        assert [int(row["step"]) for row in csv.DictReader(f)] == list(range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_task_is_named_by_the_other_and_the_job_is_not_queued_again(tmp_path, rank):
    with batch(tmp_path, 1 + os.getpid() % 9000) as job:
        both_in_mid_epoch(tmp_path, job)
        os.kill(tasks(tmp_path)[rank], signal.SIGKILL)
        (tmp_path / "on").touch()
        job.wait(100)
    (sentence,) = sentences(tmp_path)
    named = f"rank 1 on {gethostname()}" if rank else "rank 0"
    assert f"another process of this run has ended ({named})" in sentence
    assert not (tmp_path / "requeued").exists()
