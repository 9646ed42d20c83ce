"""Each way to train learns something real: whole runs on waves and digits, beside what would be had without it."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import BARE, TINY, finished

WAVES = [*BARE, "data=synthetic", "data.num_classes=4", "data.source.num_samples=1000"]
SIZES = {"embed_dim": 48, "depth": 2, "num_heads": 2}
DIGITS = ["trainer=cpu", "trainer.precision=32-true", "logger=none", "data.loading.num_workers=0", *BARE]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run that tells four directions of waves apart, from scratch."""
    return finished(tmp_path_factory.mktemp("waves") / "run", *WAVES, "trainer.max_epochs=12", "optimizer.lr=3e-3")


@pytest.fixture
def tested(cli):
    """tested(*overrides): the test metrics of a run."""

    numbers = itertools.count()

    def run(*overrides, tiny=True):
        done = cli("train", *overrides, folder=f"run_{next(numbers)}", tiny=tiny)
        assert done.status == 0, done.err
        return json.loads((done.folder / "result.json").read_text())["test"]

    return run


@pytest.mark.ci
@pytest.mark.slow
def test_from_scratch(learned):
    assert json.loads((learned / "result.json").read_text())["test"]["test/acc1"] > 0.9


@pytest.mark.slow
def test_fine_tuning_at_another_resolution(learned, tested):
    larger = [*WAVES, "data.image_size=48", "data.source.image_size=48", "optimizer.lr=1e-3"]
    larger += ["trainer.max_steps=4", "trainer.max_epochs=-1"]
    assert tested(*larger, f"model.pretrained={learned}")["test/acc1"] > 0.9
    assert tested(*larger)["test/acc1"] < 0.6


@pytest.mark.slow
def test_a_linear_probe_hears_what_the_backbone_knows(learned, tested):
    """By one label of each class; waves are told from each other by random features too, given some more."""
    probe = [*WAVES, "task=linear_probe", "task.lr_grid=[0.01,0.1,1.0]", "optimizer=sgd", "trainer.max_epochs=20"]
    probe += ["data.split.labels_per_class=1", "global_batch_size=4"]
    assert tested(*probe, f"model.pretrained={learned}")["test/acc1"] > 0.95
    assert tested(*probe)["test/acc1"] < 0.85


@pytest.mark.slow
def test_several_labels(tested):
    labels = [*WAVES, "data=synthetic_multilabel", "task=multilabel", "optimizer.lr=3e-3"]
    assert tested(*labels, "trainer.max_epochs=12")["test/map"] > 0.9
    assert tested(*labels, "trainer.max_steps=1")["test/map"] < 0.6


@pytest.mark.slow
def test_distillation_tells_more_than_few_labels(tested):
    waves = [*WAVES, "data.num_classes=8", "optimizer.lr=3e-3"]
    assert tested(*waves, "trainer.max_epochs=20")["test/acc1"] > 0.9
    few = [*waves, "data.split.labels_per_class=2", "trainer.max_epochs=40", "mixing=mixup", "global_batch_size=8"]
    taught = tested(*few, "task=distillation", "task.mode=soft", "task.teacher_share=1", "teacher.pretrained=run_0")
    alone = tested(*few)
    assert taught["test/acc1"] > alone["test/acc1"] + 0.1


@pytest.mark.slow
def test_a_masked_autoencoder_predicts_and_what_it_has_learned_helps(cli, tested):
    encoder = [f"model.encoder.{key}={value}" for key, value in SIZES.items()]
    model = ["model=mae_xs4", *encoder, "model.decoder_dim=32", "model.decoder_depth=1", "model.decoder_heads=2"]
    pretrain = [*DIGITS, *model, "task=masked_autoencoding", "~callbacks.reconstruction", "optimizer=muon"]
    loss = tested(*pretrain, "optimizer.lr=1e-2", "trainer.max_epochs=14", tiny=False)["test/loss"]
    assert loss < 0.6  # 1 is the mean of each patch

    vit = [*DIGITS, "model=vit_xs4", *[f"model.{key}={value}" for key, value in SIZES.items()]]
    tune = [
        *vit,
        "data.split.labels_per_class=10",
        "global_batch_size=20",
        "trainer.max_epochs=10",
        "optimizer.lr=1e-3",
    ]
    helped = tested(*tune, "model.pretrained=run_0", tiny=False)["test/acc1"]
    alone = tested(*tune, tiny=False)["test/acc1"]
    assert helped > alone + 0.2

    found = []
    for source in (["run=run_0"], [*model, "data=digits"]):
        run = cli("probe", *source, "shots=[]", "output=probe.json", "overwrite=true")
        assert run.status == 0, run.err
        found.append(json.loads(Path("probe.json").read_text())["probes"][0]["test/acc1"])
    assert found[0] > found[1] + 0.02  # neighbours by random features are not bad on digits
    heads = [*vit, "data.split.labels_per_class=5", "global_batch_size=10", "trainer.max_epochs=20"]
    heads += ["task=linear_probe", "optimizer=sgd"]
    known = tested(*heads, "model.pretrained=run_0", tiny=False)["test/acc1"]
    assert known > tested(*heads, tiny=False)["test/acc1"] + 0.1


@pytest.mark.slow
def test_with_the_focal_loss(tested):
    assert tested(*WAVES, "trainer.max_epochs=12", "optimizer.lr=3e-3", "loss=focal")["test/acc1"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_balanced_weights_let_a_rare_class_be_named(cli, task):
    """Images that tell nothing: one in ten is of the rare class, which nobody would name without them."""
    random = np.random.RandomState(0)
    labels = np.arange(600) % 10 == 0
    np.save("images.npy", random.randint(0, 256, (600, 8, 8, 3), dtype=np.uint8))
    several = np.stack([np.ones(600, dtype=bool), labels], axis=1)
    np.save("labels.npy", (several if task == "multilabel" else labels).astype(np.uint8))
    options = [*TINY, "data=arrays", "data.source.images.train=images.npy", "data.source.labels.train=labels.npy"]
    options += ["data.num_classes=2", "data.image_size=8", f"task={task}", "trainer.max_epochs=4", "optimizer.lr=1e-3"]
    named = []
    for weights in ("null", "balanced"):
        run = cli("train", *options, f"task.class_weights={weights}", folder=f"run_{weights}", tiny=False)
        assert run.status == 0, run.err
        with open(run.folder / "test_predictions.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        rare = [float(row["1"]) > 0.4 if task == "multilabel" else row["predicted"] == "1" for row in rows]
        named.append(sum(rare) / len(rare))
    assert named[0] < 0.05
    assert named[1] > 0.15
