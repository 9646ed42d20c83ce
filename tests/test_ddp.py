"""Two processes with gloo on a CPU are one process: the same losses, and every test sample once, in every regime."""

import csv
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import BARE, FEW, SRC, TINY, chosen, evaluated
from reading import ASKED, READER, TOWERS, WRITER
from two_processes import status_of, two_processes

from vitlab.checkpoints import file

OPTIONS = [
    *TINY,
    "~callbacks.batch_picture",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=1",
    "global_batch_size=128",
    "optimizer.lr=1e-3",
]


SHORT = [*BARE, "trainer.log_every_n_steps=1", "global_batch_size=64"]
SHORT += ["trainer.max_steps=4", "+trainer.val_check_interval=2"]
REGIMES = {
    "multilabel": [
        *["task=multilabel", "data=synthetic_multilabel", "data.num_classes=4", "data.source.num_samples=301"],
        *["callbacks=[default,ema]", "callbacks.ema.decay=0.5", "mixing=none"],
    ],
    "linear_probe": ["task=linear_probe", "task.lr_grid=[0.01,0.1]", "task.batch_norm=false", "optimizer=sgd"],
    "distillation": ["task=distillation", "teacher.pretrained=RUN"],
    "two_tokens": [
        *["task=distillation", "teacher.pretrained=RUN", "model=deit_ti16_distilled", "model.patch_size=8"],
        *["model.embed_dim=32", "model.depth=2", "model.num_heads=2", "model.drop_path_rate=0"],
    ],
    "masked_autoencoding": [  # the masks of training are each rank's own: with nothing learned, evaluation must agree
        *["task=masked_autoencoding", "model=mae_xs4", "model.encoder.embed_dim=32", "model.encoder.depth=1"],
        *["model.encoder.num_heads=2", "model.decoder_dim=24", "model.decoder_depth=1", "model.decoder_heads=2"],
        *["optimizer.lr=1e-12", "callbacks=[default]"],
    ],
    "self_distillation": [  # the centre is that of all ranks; with nothing learned the teacher stays as it is
        *["task=self_distillation", "model=dino_xs4", "model.encoder.embed_dim=32", "model.encoder.depth=1"],
        *["model.encoder.num_heads=2", "model.hidden_dim=24", "model.bottleneck_dim=8", "model.num_prototypes=16"],
        *["crop=multi_crop", "crop.train.num_small=2", "crop.train.small.image_size=16", "mixing=none"],
        *["optimizer.lr=1e-12", "callbacks=[default]"],
    ],
    "captioning": [*READER[:-3], "callbacks=[default,ema]", "callbacks.ema.decay=0.5", "data.source.num_evaluated=51"],
    "answering": [*ASKED["single_stream"][:-3], "callbacks=[default,ema]", "callbacks.ema.decay=0.5"],
    "contrastive": [*TOWERS[:-3], "callbacks=[default,ema]", "callbacks.ema.decay=0.5"],
    "sequence": [*WRITER[:-3], "callbacks=[default]", "data.source.num_numbers=501"],
    "unfreezing": ["optimizer=muon", "optimizer.trained=head", "optimizer.unfreeze_step=2", "model.drop_rate=0"],
    "probing_while_training": [  # with nothing learned: rounding decides between neighbours
        *["callbacks=[default,feature_probe]", "callbacks.feature_probe.k=5", "optimizer.lr=1e-12"]
    ],
}

COMPARED = ("val/", "train/loss", "train/acc1", "train/f1", "train/teacher_acc1", "train/grad_norm")


def rows(folder):
    with open(folder / "metrics.csv", newline="") as f:
        return list(csv.DictReader(f))


def train_with_two(folder, *options):
    """In two processes, which leave their run in `folder`/two."""
    command = [sys.executable, str(SRC / "train.py"), *chosen(*options, "trainer=ddp", "trainer.devices=2")]
    command += ["trainer.accelerator=cpu", "trainer.precision=32-true", "hydra.run.dir=two"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ), timeout=200)
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
def test_every_regime_with_two_processes_is_that_with_one(cli, digits_run, tmp_path, regime):
    tiny = [option for option in TINY if regime != "sequence" or "loading" not in option]  # texts have no workers
    options = [*tiny, *[option.replace("RUN", str(digits_run)) for option in REGIMES[regime]], *SHORT]
    train_with_two(tmp_path, *options)
    one = cli("train", *options, folder="one", tiny=False)
    assert one.status == 0, one.err
    found, expected = rows(tmp_path / "two"), rows(tmp_path / "one")
    assert found[0].keys() == expected[0].keys()
    names = [name for name in expected[0] if name.startswith(COMPARED)]
    told = 0
    for a, b in zip(expected, found, strict=True):
        for name in names:
            if a[name] and not (name.startswith("train/") and regime == "masked_autoencoding"):
                told += 1
                assert float(b[name]) == pytest.approx(float(a[name]), rel=1e-6, abs=2e-5), (name, a, b)
    assert told >= 2
    results = [json.loads((tmp_path / name / "result.json").read_text())["test"] for name in ("one", "two")]
    assert results[1] == pytest.approx(results[0], abs=2e-5)


@pytest.mark.slow
def test_two_processes_score_a_probe_with_the_statistics_that_are_kept(cli, tmp_path):
    """Each process normalises its own batches in training; the first one's statistics are broadcast in evaluation."""
    train_with_two(tmp_path, *TINY, "task=linear_probe", "task.lr_grid=[0.1]", "optimizer=sgd", *SHORT)
    logged = [float(row["val/loss"]) for row in rows(tmp_path / "two") if row["val/loss"]]
    assert logged[0] != logged[1]
    best = file.read(tmp_path / "two" / "checkpoints" / "best.ckpt")["global_step"]
    done = cli("evaluate", "run=two", "split=val")
    assert done.status == 0, done.err
    again = evaluated(tmp_path / "two", "val")["val/loss"]
    assert again == pytest.approx(logged[best // 2 - 1], abs=1e-5)


@pytest.mark.ci
@pytest.mark.slow
def test_two_processes_train_and_test_as_one(cli, tmp_path):
    train_with_two(tmp_path, *OPTIONS)
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
    one_by_one, together = (tmp_path / name / "test_per_class.csv" for name in ("one", "two"))
    assert one_by_one.read_text() == together.read_text()
    # a run of two processes goes on with one, on the right samples
    assert file.read(tmp_path / "two" / "checkpoints" / "latest.ckpt")["global_step"] == 18
    more = ["trainer.max_epochs=3", "trainer.devices=1"]
    assert cli("train", "resume=two", *more, tiny=False).status == 0
    assert cli("train", "resume=one", *more, tiny=False).status == 0
    for a, b in zip(rows(tmp_path / "one")[18:], rows(tmp_path / "two")[18:], strict=True):
        assert a["step"] == b["step"]
        if a["train/loss"]:
            assert float(a["train/loss"]) == pytest.approx(float(b["train/loss"]), abs=5e-4)


MEANWHILE = """
import threading
import torch
from unittest import mock
from vitlab.checkpoints import writer
mock.patch.object(writer, "LARGE", 0).start()
save = torch.save
def slow(state, place, **options):
    if isinstance(state, dict) and "score" in state:
        open("writers", "a").write(threading.current_thread().name + " ")
        time.sleep(1)
    save(state, place, **options)
torch.save = slow
"""


@pytest.mark.slow
def test_two_processes_that_write_while_training_goes_on_keep_and_test_the_same_model(tmp_path):
    """On a disk that takes a second for a best model. The last one is found after training, and both read it for the
    test."""
    found = []
    for name, patch in (("at_once", ""), ("meanwhile", MEANWHILE)):
        folder = tmp_path / name
        folder.mkdir()
        words = [*FEW, "~callbacks.evaluation_report", "trainer.max_steps=7", "+trainer.val_check_interval=2"]
        with two_processes(folder, *words, "monitor=val/loss", "optimizer.lr=1e-3", patch=patch) as first:
            assert status_of(first, folder) == 0, (folder / "err").read_text()
        tested = json.loads((folder / "run" / "result.json").read_text())["test"]
        found.append((file.read(folder / "run" / "checkpoints" / "best.ckpt"), tested))
    assert set((tmp_path / "meanwhile" / "writers").read_text().split()) == {"files_0"}  # by the thread
    (at_once, tested), (meanwhile, tested_meanwhile) = found
    assert at_once["global_step"] == 7
    assert tested_meanwhile == tested
    assert (meanwhile["global_step"], meanwhile["score"]) == (at_once["global_step"], at_once["score"])
    assert all(torch.equal(value, meanwhile["state_dict"][name]) for name, value in at_once["state_dict"].items())
