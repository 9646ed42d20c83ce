"""A student and its teacher: what each sees, how the teacher follows, what is refused."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from conftest import vit_options
from torch import nn
from torch.nn.functional import normalize

from vitlab.data.batches.batch import Batch, View
from vitlab.data.targets import NoTargets
from vitlab.errors import ConfigError
from vitlab.layers import patchify
from vitlab.losses import self_distillation, teacher_targets
from vitlab.models import SelfDistilled, VisionTransformer, head_names, parameter_kinds, represent
from vitlab.optim import Optimization, constant
from vitlab.tasks import SelfDistillation
from vitlab.tasks.self_distillation import compute_logits


def model_of(**changes):
    torch.manual_seed(0)
    options = {"hidden_dim": 12, "bottleneck_dim": 6, "num_prototypes": 9} | changes
    return SelfDistilled(encoder=VisionTransformer(**vit_options()), patch_size=4, **options)


def task_of(model=None, **changes):
    options = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    options |= {"unfreeze_step": None, "hidden_only": False, "weight_decay": 0.0, "lr_scaling": "none"}
    sizes = {"lr": 0.1, "lr_scaling_batch": 256, "global_batch_size": 64}
    settings = {"momentum": 0.9, "center_momentum": 0.9, "student_temperature": 0.1, "teacher_temperature": 0.04}
    return SelfDistillation(
        model=model or model_of(),
        optimization=Optimization(algorithm=torch.optim.SGD, **sizes, **options),
        schedule=partial(constant, warmup_ratio=0.0, warmup_steps=None),
        monitor="val/loss",
        seed=0,
        **settings | changes,
    )


def batch_of(sizes=(32, 32, 16, 16, 16), B=4):
    generator = torch.Generator().manual_seed(0)
    images = [torch.randn(B, 1, size, size, generator=generator) for size in sizes]
    views = tuple(View(patchify(image, 4), (image.shape[-1] // 4,) * 2) for image in images)
    return Batch(views, None, torch.arange(B))


def test_outputs_are_cosines_and_the_encoder_is_a_plain_vit():
    model, images = model_of(), torch.randn(3, 1, 32, 32)
    encoder, projection = model.encoder, model.projection
    expected = normalize(projection.mlp(encoder.represent(images)), dim=1) @ normalize(projection.prototypes, dim=1).T
    torch.testing.assert_close(model(images), expected)
    assert model(images).abs().max() <= 1 + 1e-6
    assert torch.equal(represent(model, images), encoder.represent(images))
    assert not head_names(model)
    assert not any("head" in name for name, _ in model.named_parameters())


def test_every_parameter_has_its_kind():
    kinds = parameter_kinds(model_of())
    assert kinds.outputs == {"projection.prototypes"}
    assert {name for name in kinds.undecayed if name.startswith("projection")} == {
        f"projection.mlp.{layer}.bias" for layer in (0, 2, 4)
    }
    assert kinds.layers["projection.mlp.0.weight"] == kinds.depth + 1
    assert kinds.layers["encoder.patch_embed.proj.weight"] == 0


def test_views_of_one_size_go_through_a_model_together_and_each_as_alone():
    model, batch, seen = model_of().eval(), batch_of(), []
    hook = model.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
    logits = compute_logits(model, batch.views)
    hook.remove()
    assert seen == [(8, 64, 16), (12, 16, 16)]
    for view, found in zip(batch.views, logits, strict=True):
        torch.testing.assert_close(found, model(*view.arguments()), atol=1e-6, rtol=1e-5)


def test_the_loss_is_of_the_teachers_large_views_and_the_centre_moves_behind_it():
    task, batch = task_of(), batch_of()
    task.num_large = 2
    task._trainer = SimpleNamespace(strategy=SimpleNamespace(reduce=lambda value, reduce_op: value), global_step=0)
    teacher = torch.stack([task.teacher(*view.arguments()) for view in batch.views[:2]])
    targets = teacher_targets(teacher, torch.zeros(9), 0.04)
    expected = self_distillation([task.model(*view.arguments()) for view in batch.views], list(targets), 0.1)
    torch.testing.assert_close(task.training_losses(batch), expected)
    torch.testing.assert_close(task.center, 0.1 * teacher.mean(dim=(0, 1)))
    task.training_losses(batch).mean().backward()
    assert all(p.grad is None and not p.requires_grad for p in task.teacher.parameters())
    assert all(p.grad is not None for p in task.model.parameters())


def test_the_teacher_learns_nothing_and_does_not_drop():
    task = task_of(momentum=0.5)
    assert not task.train().teacher.training
    assert task.model.training
    names = {name for group in task.learning for name in group}
    assert all(name.startswith("model.") for name in names)


@pytest.mark.parametrize("step", [0, 5, 10])
def test_the_teacher_follows_by_a_cosine(step, monkeypatch):
    task = task_of(momentum=0.5)
    task.num_steps = 10
    monkeypatch.setattr(type(task), "global_step", step)
    monkeypatch.setattr("pytorch_lightning.LightningModule.optimizer_step", lambda *_: None)
    before = [p.clone() for p in task.teacher.parameters()]
    with torch.no_grad():
        for p in task.model.parameters():
            p.add_(1.0)
    task.optimizer_step(0, 0, None)
    moved = 0.5 * (1 + math.cos(math.pi * step / 10)) / 2
    for p, old in zip(task.teacher.parameters(), before, strict=True):
        torch.testing.assert_close(p, old + moved)


def test_entropy_tells_of_a_collapse():
    task = task_of()
    for logits, expected in ((torch.zeros(4, 9), 1.0), (10 * torch.eye(9)[:4], 0.0)):
        task.targets(logits, "val")
        assert task.metrics["val"].compute()["entropy"] == pytest.approx(expected, abs=1e-6)
        task.metrics["val"].reset()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": nn.Linear(1, 1)}, "the model is a Linear"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        task_of(**changes)


def test_one_view_is_refused():
    data = SimpleNamespace(images=SimpleNamespace(num_views=1, train_crop=None), targets=NoTargets.times(3))
    with pytest.raises(ConfigError, match="choose crop=multi_crop"):
        task_of().plan(1, data, {})


def test_an_encoder_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="choose a plain ViT"):
        SelfDistilled(encoder=nn.Linear(1, 1), patch_size=4, hidden_dim=1, bottleneck_dim=1, num_prototypes=1)
