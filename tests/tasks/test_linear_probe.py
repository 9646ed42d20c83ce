"""Heads at several learning rates at once: each as if alone, on features of a model that stays as it is."""

import csv
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, evaluated, vit_options
from torch import nn
from torchmetrics.functional.classification import multiclass_accuracy

from vitlab.checkpoints import file
from vitlab.data.batches.batch import Batch, View
from vitlab.losses import softmax_cross_entropy
from vitlab.models import DistilledVisionTransformer, VisionTransformer, find_heads, timm_model, torchvision_model
from vitlab.optim import Optimization, constant
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks import LinearProbe
from vitlab.tasks.per_head_metrics import PerHeadMetrics

PROBE = [*BARE, "task=linear_probe", "optimizer=sgd", "optimizer.weight_decay=0", "schedule=constant"]
PROBE += ["schedule.warmup_ratio=0", "trainer.log_every_n_steps=1"]


def task_of(model, lr_grid=(0.1, 1.0), **changes):
    options = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    options |= {"unfreeze_step": None, "hidden_only": False, "weight_decay": 0.1, "lr_scaling": "linear"} | changes
    return LinearProbe(
        model=model,
        optimization=Optimization(
            algorithm=torch.optim.SGD, lr=7.0, lr_scaling_batch=256, global_batch_size=64, **options
        ),
        schedule=lambda num_steps: constant(num_steps, warmup_ratio=0.0, warmup_steps=None),
        loss=partial(softmax_cross_entropy, label_smoothing=0.1),
        lr_grid=list(lr_grid),
        batch_norm=True,
        num_classes=10,
        class_weights=None,
        monitor="val/acc1",
        seed=0,
    )


def state(cli, folder, *options):
    run = cli("train", *PROBE, *options, folder=folder)
    assert run.status == 0, run.err
    return file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"]


@pytest.mark.ci
@pytest.mark.slow
def test_each_head_learns_as_if_it_were_alone(cli):
    """The gradients are clipped head by head, too: a limit that only the greedy one meets."""
    options = ["trainer.max_steps=6", "trainer.gradient_clip_val=0.5", "mixing=mixup"]
    both = state(cli, "both", *options, "task.lr_grid=[0.1,3.0]")
    for number, lr in enumerate((0.1, 3.0)):
        alone = state(cli, f"alone{number}", *options, f"task.lr_grid=[{lr}]")
        for name in ("weight", "bias"):
            a, b = alone[f"heads.0.{name}"], both[f"heads.{number}.{name}"]
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
        assert torch.equal(alone["norm.running_var"], both["norm.running_var"])
    assert not torch.allclose(both["heads.0.weight"], both["heads.1.weight"], atol=1e-2)


def test_one_head_is_the_classifier_that_torch_trains():
    """Three steps of SGD on normalised features, in a loop written out."""
    torch.manual_seed(0)
    model = VisionTransformer(**vit_options())
    own = nn.Sequential(nn.BatchNorm1d(32, affine=False, eps=1e-6), nn.Linear(32, 10))
    own[1].load_state_dict(model.head.state_dict())
    task = task_of(model, lr_grid=[0.4])
    optimizer = task.optimization.optimizer(task.groups)
    expected = torch.optim.SGD(
        [{"params": [own[1].weight], "weight_decay": 0.1}, {"params": [own[1].bias]}], lr=0.4 * 64 / 256
    )
    for _ in range(3):
        images, target = torch.randn(8, 1, 32, 32), torch.randint(10, (8,))
        optimizer.zero_grad()
        task.train().training_losses(Batch((View(images),), target, torch.arange(8))).mean().backward()
        optimizer.step()
        expected.zero_grad()
        softmax_cross_entropy(own(model.represent(images)), target, label_smoothing=0.1).mean().backward()
        expected.step()
    torch.testing.assert_close(task.heads[0].weight, own[1].weight, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(task.heads[0].bias, own[1].bias, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(task.norm.running_mean, own[0].running_mean)


@pytest.mark.slow
def test_the_backbone_stays_as_it_is_with_its_running_statistics(cli):
    options = ["model=resnet20", "data=synthetic", "data.num_classes=4", "data.source.num_samples=300"]
    one, three = (state(cli, f"steps{n}", *options, f"trainer.max_steps={n}") for n in (1, 3))
    assert one.keys() == three.keys()
    backbone = [name for name in one if name.startswith("model.") and not name.startswith("model.fc.")]
    assert any(name.endswith("running_mean") for name in backbone)
    assert all(torch.equal(one[name], three[name]) for name in backbone)
    for name in ("norm.running_mean", "heads.0.weight", "model.fc.weight"):
        assert not torch.equal(one[name], three[name])


MODELS = {
    "vit": lambda: VisionTransformer(**vit_options()),
    "representation": lambda: VisionTransformer(**vit_options(representation_dim=24)),
    "mean": lambda: VisionTransformer(**vit_options(pool="mean")),
    "torchvision": lambda: torchvision_model(
        name="resnet18", patch_size=None, in_chans=1, num_classes=10, small_images=False
    ),
    "timm": lambda: timm_model(
        name="convnext_atto",
        image_size=None,
        patch_size=None,
        in_chans=1,
        num_classes=10,
        drop_rate=0.0,
        drop_path_rate=None,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_best_head_becomes_the_models_own_with_the_normalisation_in_it(name):
    torch.manual_seed(0)
    task = task_of(MODELS[name]())
    images = torch.randn(4, 1, 32, 32)
    with torch.no_grad():
        for head in task.heads:
            nn.init.normal_(head.weight)
            nn.init.normal_(head.bias)
        task.norm.running_mean.normal_()
        task.norm.running_var.uniform_(0.2, 3.0)
        task.best.fill_(1)
        task.eval().give_head()
        logits = task.all_logits(Batch((View(images),), torch.zeros(4), torch.arange(4)))
        assert not torch.allclose(logits[:, 0], logits[:, 1], atol=0.1)
        torch.testing.assert_close(task(images), logits[:, 1], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_run_says_how_each_head_does_and_keeps_the_best(cli, digits_run):
    grid = [0.0001, 0.1, 1000.0]
    options = [f"model.pretrained={digits_run}", "trainer.max_epochs=5", f"task.lr_grid={grid}".replace(" ", "")]
    run = cli("train", *PROBE, *options, "trainer.log_every_n_steps=50", folder="probe")
    assert run.status == 0, run.err
    result = json.loads((run.folder / "result.json").read_text())
    assert result["score"] > 0.2  # random heads are right about one in ten
    with open(run.folder / "metrics.csv", newline="") as f:
        rows = [row for row in csv.DictReader(f) if row.get("val/acc1")]
    assert len(rows) == 5
    for row in rows:
        heads = [(float(row[f"val/acc1_lr_{lr:g}"]), -float(row[f"val/loss_lr_{lr:g}"])) for lr in grid]
        assert (float(row["val/acc1"]), -float(row["val/loss"])) == max(heads)
    assert [line.split()[1] for line in run.out.splitlines() if line.startswith("│ ") and "%" in line][:3] == [
        f"{lr:g}" for lr in grid
    ]
    saved = SavedRun.open(str(run.folder)).task()
    assert saved.lr_grid[int(saved.best)] == 0.1
    before = file.read(digits_run / "checkpoints" / "best.ckpt")["state_dict"]
    backbone = {name: value for name, value in before.items() if name.startswith("model.") and "head" not in name}
    assert all(torch.equal(value, saved.state_dict()[name]) for name, value in backbone.items())
    assert not torch.equal(before["model.head.weight"], saved.model.head.weight)
    scored = cli("evaluate", f"run={run.folder}")
    assert scored.status == 0, scored.err
    again = evaluated(run.folder)
    assert again["test/acc1"] == result["test"]["test/acc1"]


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_in_two_parts_is_the_whole_run(cli):
    options = ["task.lr_grid=[0.1,1.0]", "+trainer.val_check_interval=2", "optimizer=adamw", "global_batch_size=256"]
    whole = state(cli, "whole", *options, "trainer.max_steps=6")
    state(cli, "parts", *options, "trainer.max_steps=3")
    assert cli("train", "resume=parts", "trainer.max_steps=6", tiny=False).status == 0
    parts = file.read(Path("parts") / "checkpoints" / "latest.ckpt")["state_dict"]
    assert whole.keys() == parts.keys()
    heads = [name for name in whole if not name.startswith("model.head.") and name != "best"]  # validated once more
    assert all(torch.equal(whole[name], parts[name]) for name in heads)


def test_scores_of_heads_are_those_of_torchmetrics():
    torch.manual_seed(0)
    scores, logits, losses = PerHeadMetrics(3, (1, 5)), torch.randn(20, 3, 10), torch.rand(20, 3)
    target = torch.randint(10, (20,))
    for part in (slice(0, 7), slice(7, 20)):
        scores.update(logits[part], losses[part], target[part])
    found = scores.compute()
    for head in range(3):
        for name, top_k in (("acc1", 1), ("acc5", 5)):
            expected = multiclass_accuracy(logits[:, head], target, 10, average="micro", top_k=top_k)
            torch.testing.assert_close(found[name][head], expected)
    torch.testing.assert_close(found["loss"], losses.mean(dim=0))


@pytest.mark.parametrize(
    ("acc1", "loss", "best"),
    [([0.5, 0.7, 0.6], [1, 3, 2], 1), ([0.7, 0.7, 0.6], [2, 1, 0], 1), ([0.7, 0.7], [1, 1], 0)],
)
def test_the_best_head_is_the_most_accurate_and_then_the_one_of_lower_loss(monkeypatch, acc1, loss, best):
    task = task_of(MODELS["vit"](), lr_grid=[0.1, 0.2, 0.3][: len(acc1)])
    trainer = SimpleNamespace(sanity_checking=True, loggers=[])
    monkeypatch.setattr(LinearProbe, "trainer", trainer)
    found = {"acc1": torch.tensor(acc1), "acc5": torch.tensor(acc1), "loss": torch.tensor(loss).float()}
    monkeypatch.setattr(task.per_head, "compute", lambda: found)
    scores = task.scores("val")
    assert (int(task.best), float(scores["acc1"]), float(scores["loss"])) == (
        best,
        pytest.approx(acc1[best]),
        loss[best],
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr_grid": []}, "must be a list of different learning rates"),
        ({"lr_grid": [0.1, 0.1]}, "a list of different learning rates"),
        ({"layer_decay": 0.9}, "layer_decay 0.9 has no effect when only heads are trained; leave it at 1.0"),
        ({"trained": "head"}, "trained head has no effect when only heads are trained; leave it at all"),
    ],
)
def test_what_a_probe_cannot_do_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        task_of(MODELS["vit"](), **changes)


def test_models_without_one_linear_head_are_refused():
    with pytest.raises(ValueError, match="has no linear head of 10 classes"):
        task_of(DistilledVisionTransformer(**vit_options()))
    with pytest.raises(ValueError, match="has no linear head of 10 classes"):
        task_of(VisionTransformer(**vit_options(num_classes=7)))


@pytest.mark.slow
def test_statistics_of_one_image_are_refused(cli):
    run = cli("train", *PROBE, "data.device_batch_size=1", folder="one")
    assert run.status == 2
    assert "task.batch_norm=true needs at least two images at a time" in run.err
    one = ["data.device_batch_size=1", "task.batch_norm=false", "trainer.max_steps=1"]
    assert cli("train", *PROBE, *one, "trainer.limit_val_batches=1", "trainer.limit_test_batches=1").status == 0


def test_averages_of_the_weights_are_refused(cli):
    run = cli("train", *PROBE, "callbacks=[default,ema]", folder="averaged")
    assert run.status == 2
    assert "task=linear_probe keeps the best of several heads" in run.err


def test_every_parameter_of_the_heads_is_in_one_group_and_none_of_the_model():
    task = task_of(MODELS["vit"]())
    rates = {group["name"]: (group["lr"], group["weight_decay"]) for group in task.groups}
    assert rates == {
        "lr 0.1, decay": (0.025, 0.1),
        "lr 0.1, no decay": (0.025, 0.0),
        "lr 1, decay": (0.25, 0.1),
        "lr 1, no decay": (0.25, 0.0),
    }
    grouped = [id(p) for group in task.groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in task.heads.parameters())
    assert not any(p.requires_grad for p in task.model.parameters())
    assert find_heads(task.model)[0].weight.data_ptr() not in {p.data_ptr() for p in task.heads.parameters()}
