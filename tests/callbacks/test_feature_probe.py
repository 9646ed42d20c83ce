"""Nearest neighbours and few-shot regression at validation: figures that are right, and a training that is the same."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import BARE, SRC, TINY, chosen
from sklearn.neighbors import KNeighborsClassifier

from vitlab.callbacks import FeatureProbe
from vitlab.checkpoints import file
from vitlab.features import choose_shots
from vitlab.run.inference.saved_run import SavedRun

NAMES = ["val/knn_acc1", "val/5shot_acc1"]
OPTIONS = [*BARE, "trainer.max_epochs=2", "global_batch_size=256", "model.drop_rate=0.1", "mixing=mixup"]
FEW = ["data.split.labels_per_class=52", "global_batch_size=128"]  # 4 steps an epoch, as OPTIONS makes of all
PROBED = "callbacks=[default,feature_probe]"


def probe(**changes):
    options = {"every_n_epochs": 1, "max_train": None, "k": 20, "temperature": 0.07, "shots": [5], "l2": 1024.0}
    return FeatureProbe(**options | {"seed": 0} | changes)


def figures(folder, names=NAMES):
    """Values of the probe by step, where there are any."""
    with open(folder / "metrics.csv", newline="") as rows:
        return {
            int(row["step"]): [float(row[name]) for name in names] for row in csv.DictReader(rows) if row.get(names[0])
        }


def state(folder):
    latest = file.read(folder / "checkpoints" / "latest.ckpt")
    return {key: latest[key] for key in ("state_dict", "optimizer_states", "lr_schedulers", "global_step")}


def same(a, b):
    """Whether two nested states are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.ci), 1])
def test_training_is_what_it_would_be_without(cli, workers):
    options = [*OPTIONS, *FEW, f"data.loading.num_workers={workers}"]
    plain = cli("train", *options, folder="plain")
    probed = cli("train", *options, PROBED, folder="probed")
    assert (plain.status, probed.status) == (0, 0), probed.err
    assert same(state(plain.folder), state(probed.folder))
    results = [json.loads((run.folder / "result.json").read_text()) for run in (plain, probed)]
    assert results[0]["test"] == results[1]["test"]
    assert list(figures(probed.folder)) == [4, 8]
    assert re.search(r"val/knn_acc1 \d+\.\d\d%", probed.out)
    assert re.search(r"val/5shot_acc1 \d+\.\d\d%", probed.out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", ["default,ema,feature_probe", pytest.param("feature_probe,default,ema", marks=pytest.mark.slow)]
)
def test_figures_are_of_the_weights_that_validation_sees(cli, order):
    """Those of the average, kept as the best model; scikit-learn says how good its neighbours are."""
    ema = [f"callbacks=[{order}]", "callbacks.ema.decay=0.5", "callbacks.feature_probe.max_train=300"]
    run = cli("train", *OPTIONS, "trainer.max_epochs=1", "optimizer.lr=1e-2", *ema, folder="run")
    assert run.status == 0, run.err
    latest = file.read(run.folder / "checkpoints" / "latest.ckpt")
    assert not same(latest["state_dict"], latest["current_model_state"])
    saved = SavedRun.open("run")
    datamodule, model = saved.datamodule(), saved.task().model.eval()
    datamodule.setup()
    places = probe(max_train=300).places(1258)

    def take(weights):
        model.load_state_dict({name.removeprefix("model."): w for name, w in weights.items() if name[:6] == "model."})

    def score(weights):
        take(weights)
        neighbours = KNeighborsClassifier(
            20, metric="cosine", algorithm="brute", weights=lambda distance: np.exp(-distance / 0.07)
        ).fit(*features("train", places))
        return neighbours.score(*features("val", range(180)))

    def features(split, places):
        seen = datamodule.get_evaluation_split(split)
        samples = [seen[(0, place)] for place in places]
        with torch.no_grad():
            images = datamodule.preprocessing.normalize(torch.stack([sample.image for sample in samples]))
            return model.represent(images).numpy(), seen.targets[list(places)].tolist()

    found, step = figures(run.folder)[4][0], 1 / 180
    assert found == pytest.approx(score(latest["state_dict"]), abs=1.5 * step)
    assert abs(found - score(latest["current_model_state"])) > 2 * step

    take(latest["state_dict"])  # least squares of 5 training images of each class, by numpy
    values, target = map(np.asarray, features("train", places))
    few = choose_shots(torch.as_tensor(target), 5, seed=0).numpy()
    assert (np.bincount(target[few]) == 5).all()
    mean, std = values[few].mean(axis=0), values[few].std(axis=0) + 1e-5
    x, asked = ((np.insert((v - mean) / std, 0, 100.0, axis=1)) for v in (values[few], features("val", range(180))[0]))
    weights = np.linalg.solve(x.T @ x + 1024.0 * np.eye(x.shape[1]), x.T @ (2.0 * np.eye(10)[target[few]] - 1))
    right = (asked @ weights).argmax(axis=1) == features("val", range(180))[1]
    assert figures(run.folder)[4][1] == pytest.approx(right.mean(), abs=1.5 * step)


@pytest.mark.slow
def test_every_second_epoch_and_not_shown_in_between(cli):
    run = cli(
        "train",
        *OPTIONS,
        *FEW,
        PROBED,
        "trainer.max_epochs=3",
        "callbacks.feature_probe.every_n_epochs=2",
        "callbacks.feature_probe.shots=[]",
        folder="run",
    )
    assert run.status == 0, run.err
    assert list(figures(run.folder, NAMES[:1])) == [8]
    lines = [line for line in run.out.splitlines() if line.startswith("epoch ")]
    assert ["val/knn_acc1" in line for line in lines] == [False, True, False]
    assert "5shot" not in run.out


@pytest.mark.slow
def test_a_resumed_run_has_the_same_figures(cli):
    whole = cli("train", *OPTIONS, PROBED, "trainer.max_epochs=2", "schedule=constant", folder="whole")
    assert whole.status == 0, whole.err
    assert cli("train", *OPTIONS, PROBED, "trainer.max_epochs=1", "schedule=constant", folder="part").status == 0
    assert cli("train", "resume=part", "trainer.max_epochs=2", tiny=False).status == 0
    assert figures(Path("part")) == figures(Path("whole"))


def test_training_images_are_chosen_by_the_seed_alone():
    chosen = probe(max_train=10).places(100)
    assert chosen == sorted(set(chosen)) == probe(max_train=10, k=3).places(100)
    assert len(chosen) == 10
    assert chosen != probe(max_train=10, seed=1).places(100)
    assert probe(max_train=100).places(100) == probe().places(100) == list(range(100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("callbacks.feature_probe.every_n_epochs=0", ["every_n_epochs 0 is not a whole number of at least 1"]),
        ("callbacks.feature_probe.shots=[0]", ["shots [0]"]),
        ("callbacks.feature_probe.temperature=0", ["temperature 0"]),
        ("callbacks.feature_probe.l2=-1", ["l2 -1"]),
        ("callbacks.feature_probe.k=2000", ["feature_probe.k 2000", "1258 training images"]),
        ("callbacks.feature_probe.max_train=10", ["feature_probe.k 20", "10 training images"]),
        ("monitor=val/knn_acc1", ["monitor 'val/knn_acc1'", "val/acc1"]),  # no task promises it
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_before_the_first_step(cli, override, words):
    run = cli("train", *OPTIONS, PROBED, override, folder="run")
    assert run.status == 2, run.err
    assert all(word in run.err for word in words), run.err
    assert "Traceback" not in run.err
    assert not (run.folder / "checkpoints").exists()


@pytest.mark.slow
def test_two_processes_find_what_one_finds(cli, tmp_path):
    options = [*TINY, *OPTIONS, PROBED, "mixing=none", "model.drop_rate=0", "trainer.max_epochs=1"]
    command = [sys.executable, str(SRC / "train.py"), *chosen(*options, "trainer=ddp", "trainer.devices=2")]
    command += ["trainer.accelerator=cpu", "hydra.run.dir=two"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), timeout=200)
    assert process.returncode == 0, process.stderr
    assert cli("train", *options, folder="one", tiny=False).status == 0
    one, two = figures(tmp_path / "one"), figures(tmp_path / "two")
    assert list(one) == list(two) == [4]
    assert two[4] == pytest.approx(one[4], abs=1.5 / 180)
