"""Two processes with gloo on a CPU are one process: the same losses, and every test sample once."""

import csv
import json
import os
import subprocess
import sys

import pytest
from conftest import SRC, TINY

from vitlab.checkpoints import file

OPTIONS = [
    *TINY,
    "~callbacks.batch_picture",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=1",
    "global_batch_size=128",
    "optimizer.lr=1e-3",
]


def rows(folder):
    with open(folder / "metrics.csv", newline="") as f:
        return list(csv.DictReader(f))


@pytest.mark.slow  # .ci/run runs it all the same
def test_two_processes_train_and_test_as_one(cli, tmp_path):
    command = [sys.executable, str(SRC / "train.py"), *OPTIONS, "trainer=ddp", "trainer.devices=2"]
    command += ["trainer.accelerator=cpu", "trainer.max_epochs=2", "hydra.run.dir=two"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), timeout=200)
    assert process.returncode == 0, process.stderr
    assert cli("train", *OPTIONS, folder="one", tiny=False).status == 0
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert [row["step"] for row in one] == [row["step"] for row in two]
    for a, b in zip(one, two, strict=True):
        for name in ("train/loss", "val/loss", "train/acc1"):
            assert a[name] == b[name] == "" or float(a[name]) == pytest.approx(float(b[name]), abs=2e-5), (name, a)
    results = [json.loads((tmp_path / name / "result.json").read_text())["test"] for name in ("one", "two")]
    assert results[0]["test/acc1"] == results[1]["test/acc1"]
    for name in ("one", "two"):
        with open(tmp_path / name / "test_predictions.csv", newline="") as f:
            assert [int(row["index"]) for row in csv.DictReader(f)] == list(range(359))
    # a run of two processes goes on with one, on the right samples
    assert file.read(tmp_path / "two" / "checkpoints" / "latest.ckpt")["global_step"] == 18
    more = ["trainer.max_epochs=3", "trainer.devices=1"]
    assert cli("train", "resume=two", *more, tiny=False).status == 0
    assert cli("train", "resume=one", *more, tiny=False).status == 0
    for a, b in zip(rows(tmp_path / "one")[18:], rows(tmp_path / "two")[18:], strict=True):
        assert a["step"] == b["step"]
        if a["train/loss"]:
            assert float(a["train/loss"]) == pytest.approx(float(b["train/loss"]), abs=5e-4)
