"""Processes that torchrun starts: one folder for all of them, and a run that goes on by itself when one is lost."""

import csv
import json
import os
import subprocess
import sys

import pytest
from conftest import SRC
from two_processes import ENTRY, TWO

LOST = """
from vitlab.tasks import Classification
step = Classification.training_step
def lost(self, batch, batch_idx):
    if os.environ["RANK"] == "1" and self.global_step == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os._exit(9)
    return step(self, batch, batch_idx)
Classification.training_step = lost
"""


@pytest.mark.slow
def test_a_lost_process_is_started_again_with_all_others_and_the_run_goes_on(tmp_path):
    (tmp_path / "entry.py").write_text(ENTRY.format(src=str(SRC), patch=LOST), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "entry.py", *TWO, "resume=auto"]
    command += ["trainer.max_steps=8", "trainer.max_epochs=-1", "callbacks.latest_state.every_n_steps=2"]
    command += ["data.split.labels_per_class=26", "~callbacks.evaluation_report"]
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=280)
    assert run.returncode == 0, run.stderr
    (folder,) = tmp_path.glob("runs/*/*")
    assert json.loads((folder / "result.json").read_text())["steps"] == 8
    starts = json.loads((folder / "provenance.json").read_text())
    assert [start["from_step"] for start in starts] == [0, 4]
    with open(folder / "metrics.csv", newline="") as f:
        assert [int(row["step"]) for row in csv.DictReader(f)] == list(range(1, 9))
