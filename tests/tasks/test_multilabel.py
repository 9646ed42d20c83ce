"""Several classes an image: how it is measured, what it says of each sample, and what it refuses."""

import csv
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import BARE, vit_options
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import average_precision_score, f1_score
from torch import nn

from vitlab.callbacks.label_tables import SEVERAL_CLASSES
from vitlab.data.batches.batch import Batch, View
from vitlab.data.targets import OneClass, SeveralClasses
from vitlab.errors import ConfigError
from vitlab.losses import focal_cross_entropy, sigmoid_cross_entropy, softmax_cross_entropy
from vitlab.models import VisionTransformer
from vitlab.optim import Optimization, constant
from vitlab.tasks import Classification, MultilabelClassification
from vitlab.tasks.average_precision import MeanAveragePrecision, average_precision

SMALL = ["data=synthetic_multilabel", "data.num_classes=4", "data.source.num_samples=300", "global_batch_size=50"]


def task_of(kind=MultilabelClassification, loss=None, model=None, **changes):
    options = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    options |= {"unfreeze_step": None, "hidden_only": False, "weight_decay": 0.0, "lr_scaling": "none"}
    sizes = {"lr": 0.1, "lr_scaling_batch": 256, "global_batch_size": 64}
    return kind(
        model=model or nn.Sequential(nn.Flatten(), nn.Linear(4, 10)),
        optimization=Optimization(algorithm=torch.optim.SGD, **sizes, **options),
        schedule=lambda num_steps: constant(num_steps, warmup_ratio=0.0, warmup_steps=None),
        loss=loss or partial(sigmoid_cross_entropy, label_smoothing=0.1, over_classes="mean"),
        num_classes=10,
        class_weights=None,
        seed=0,
        **{"monitor": "val/loss"} | changes,
    )


@pytest.fixture
def task():
    return task_of(model=VisionTransformer(**vit_options()))


# -- average precision


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(-3, 3), min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n)
        )
    )
)
@settings(deadline=None)
def test_average_precision_is_scikit_learns_with_ties(drawn):
    scores, target = (np.array(values) for values in drawn)
    found = average_precision(torch.tensor(scores)[:, None].float(), torch.tensor(target)[:, None])[0]
    if not target.any():
        assert found.isnan()
    else:
        assert found == pytest.approx(average_precision_score(target, scores))


def test_the_mean_is_over_the_classes_that_there_are_whatever_the_batches():
    torch.manual_seed(0)
    scores, target = torch.randn(50, 4) * 100, torch.rand(50, 4) < 0.3
    target[:, 2] = False
    metric = MeanAveragePrecision(4)
    for part in (slice(0, 1), slice(1, 30), slice(30, 50)):
        metric.update(scores[part], target[part])
    expected = average_precision_score(target[:, [0, 1, 3]].numpy(), scores[:, [0, 1, 3]].numpy(), average="macro")
    assert float(metric.compute()) == pytest.approx(expected)
    metric.reset()
    metric.update(scores[:9], target[:9])
    assert metric.scores[0].shape == (9, 4)


# -- the task


def test_loss_and_metrics_of_an_evaluation(task):
    torch.manual_seed(0)
    task.eval()
    images, target = torch.randn(40, 1, 32, 32), (torch.rand(40, 10) < 0.4).float()
    with torch.no_grad():
        nn.init.normal_(task.model.head.weight, std=0.5)
        logits = task.model(images)
        parts = [
            task.evaluate_batch(Batch((View(images[s]),), target[s], torch.arange(40)[s]), "val")
            for s in (slice(25), slice(25, 40))
        ]
    loss = torch.cat([loss for loss, _ in parts])
    expected = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(dim=1)
    torch.testing.assert_close(loss, expected)  # without label smoothing, and the mean over the classes
    torch.testing.assert_close(parts[0][1]["predictions"].logits, logits[:25])
    values = task.metrics["val"].compute()
    p = task.probabilities(logits)
    torch.testing.assert_close(p, 1 / (1 + (-logits).exp()))
    assert float(values["map"]) == pytest.approx(average_precision_score(target, logits, average="macro"))
    assert float(values["f1"]) == pytest.approx(f1_score(target.flatten(), (p > 0.5).flatten()))


def test_training_measures_mixed_targets(task):
    target = torch.tensor([[1.0, 0.6, 0.4, *[0.0] * 7]] * 2)
    logits = torch.tensor([[1.0, 1.0, -1.0, *[-1.0] * 7], [-1.0] * 10])
    task.count("fit", logits, target)
    assert task.metrics["fit"].compute().keys() == {"f1"}
    assert float(task.metrics["fit"].compute()["f1"]) == pytest.approx(2 * 2 / (2 * 2 + 0 + 2))
    loss = task.training_losses(Batch((View(torch.randn(2, 1, 32, 32)),), target, torch.arange(2)))
    assert loss.shape == (2,)
    assert loss.requires_grad


def test_a_softmax_of_sigmoid_logits_is_the_chance_of_each_class_given_there_is_one():
    logits = torch.randn(3, 10)
    p = logits.sigmoid()
    only = torch.stack(
        [p[:, k] * torch.cat([1 - p[:, :k], 1 - p[:, k + 1 :]], dim=1).prod(dim=1) for k in range(10)], dim=1
    )
    task = task_of(Classification, monitor="val/acc1")
    torch.testing.assert_close(task.probabilities(logits), only / only.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("loss", [softmax_cross_entropy, focal_cross_entropy])
def test_a_loss_in_which_classes_compete_is_refused(loss):
    with pytest.raises(ValueError, match="this loss allows one class for each image"):
        task_of(loss=partial(loss, label_smoothing=0.0))


def test_data_of_another_kind_of_label_is_refused():
    with pytest.raises(ConfigError, match="may have several classes; set task=multilabel"):
        task_of(Classification, monitor="val/acc1").plan(
            1, SimpleNamespace(targets=SeveralClasses([]), images=SimpleNamespace(num_views=1)), {}
        )
    with pytest.raises(ConfigError, match="images with one class each; set task=classification"):
        task_of().plan(1, SimpleNamespace(targets=OneClass([]), images=SimpleNamespace(num_views=1)), {})


# -- the report, and whole runs


def test_the_report_names_true_labels_and_draws_a_bar_for_each_class():
    names = ["cat", "dog", "owl", "fox"]
    target = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    p = torch.tensor([[0.9, 0.2, 0.6, 0.1], [0.1, 0.3, 0.2, 0.1], [0.2, 0.8, 0.1, 0.05]])
    table = SEVERAL_CLASSES.columns(target, p).numpy()
    assert SEVERAL_CLASSES.heads(names) == ["true", *names]
    assert SEVERAL_CLASSES.words(table[0], names) == ["cat, dog", 0.9, 0.2, 0.6, 0.1]
    assert SEVERAL_CLASSES.words(table[1], names)[0] == "none"
    assert SEVERAL_CLASSES.title(table[0], names) == "cat\ndog\nsaid:\ncat 90.0%\nowl 60.0%\ndog 20.0%"
    (axes,) = SEVERAL_CLASSES.figure(table, names, "test").axes
    bars = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.patches, strict=True))
    widths = {name: round(bar.get_width(), 4) for name, bar in bars.items()}
    assert widths == {"owl (none)": 0.0, "fox": 0.3333, "dog": 0.8333, "cat": 1.0}


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_on_several_labels_from_training_to_prediction(cli, tmp_path):
    options = ["task=multilabel", *SMALL, "mixing=mixup", "~callbacks.model_views", "trainer.max_steps=4"]
    run = cli("train", *options, "trainer.log_every_n_steps=1", folder="run", pictures=True)
    assert run.status == 0, run.err
    assert "test/map" in run.out
    header, *rows = csv.reader((run.folder / "test_predictions.csv").read_text().splitlines())
    assert header == ["index", "name", "true", "0 degrees", "45 degrees", "90 degrees", "135 degrees", "loss"]
    assert len(rows) == 60
    assert all(0 < float(value) < 1 for row in rows for value in row[3:7])
    pictures = {path.name for path in (run.folder / "pictures").iterdir()}
    of_the_test = {"test_average_precision.png", "test_worst_predictions.png"}
    assert pictures == {"training_batch.png", "curves.png", *of_the_test}
    assert "train/f1" in (run.folder / "metrics.csv").read_text()
    evaluated = cli("evaluate", "run=run", "split=val")
    assert evaluated.status == 0, evaluated.err
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (32, 32, 3), dtype=np.uint8)).save("new.png")
    assert cli("predict", "run=run", "images=new.png", "top_k=4").status == 0
    (row,) = csv.DictReader(next((run.folder / "predict").glob("*/predictions.csv")).read_text().splitlines())
    assert sum(float(row[f"probability_{rank}"]) for rank in range(1, 5)) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (SMALL, "may have several classes; set task=multilabel"),
        (["task=multilabel"], "images with one class each; set task=classification"),
        ([*SMALL, "task=multilabel", "loss=softmax"], "this loss allows one class for each image"),
        ([*SMALL, "task=multilabel", "monitor=val/acc1"], "use one of: val/loss, val/map, val/f1"),
    ],
)
def test_kinds_of_labels_are_not_confused(cli, overrides, message):
    run = cli("train", *BARE, *overrides, folder="refused")
    assert run.status == 2
    assert message in run.err
