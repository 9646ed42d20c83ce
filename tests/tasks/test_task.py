"""What every task shares, in whole runs: what is frozen, when it starts to learn, and how gradients are clipped."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, vit_options
from one_process import one_process
from test_resume import Killed
from timm.optim import Lamb
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from vitlab.checkpoints import file
from vitlab.data.batches.batch import Batch, View
from vitlab.data.targets import OneClass
from vitlab.distributed.sharding import unshard_tensor
from vitlab.errors import ConfigError
from vitlab.losses import softmax_cross_entropy
from vitlab.models import VisionTransformer, torchvision_model
from vitlab.optim import Optimization, constant
from vitlab.tasks import Classification

QUICK = [*BARE, "data=synthetic", "data.num_classes=4", "data.source.num_samples=300", "global_batch_size=50"]
EVERY_STEP = [*QUICK, "callbacks.latest_state.every_n_steps=1", "schedule.warmup_ratio=0", "schedule=constant"]


ONE_VIEW = SimpleNamespace(num_views=1)


def task_of(model, algorithm=torch.optim.SGD, class_weights=None, **changes):
    options = {"lr": 0.1, "lr_scaling": "none", "lr_scaling_batch": 256, "global_batch_size": 64, "weight_decay": 0.0}
    options |= {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    options |= {"unfreeze_step": None, "hidden_only": False} | changes
    return Classification(
        model=model,
        optimization=Optimization(algorithm=algorithm, **options),
        schedule=lambda num_steps: constant(num_steps, warmup_ratio=0.0, warmup_steps=None),
        loss=partial(softmax_cross_entropy, label_smoothing=0.0),
        num_classes=10,
        class_weights=class_weights,
        monitor="val/acc1",
        seed=0,
    )


def weights_after(cli, steps, *options, name):
    """Of a run that is killed after so many of its steps."""
    step, folder = Classification.training_step, f"{name}_{steps}"

    def killed_at(task, *arguments):
        if task.global_step == steps:
            raise Killed
        return step(task, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Classification, "training_step", killed_at)
        with pytest.raises(Killed):
            cli("train", *EVERY_STEP, "trainer.max_steps=9", *options, folder=folder)
    return file.read(Path(folder) / "checkpoints" / "latest.ckpt")["state_dict"]


def changed(before, after):
    return {name for name in before if name.startswith("model.") and not before[name].equal(after[name])}


def test_what_is_frozen_learns_from_the_step_on_that_is_stated(cli):
    later = ["optimizer.trained=head", "optimizer.unfreeze_step=3"]
    one, three, four = (weights_after(cli, steps, *later, name="later") for steps in (1, 3, 4))
    head = {"model.head.weight", "model.head.bias"}
    assert changed(one, three) == head
    assert changed(three, four) > head
    assert {"model.patch_embed.proj.weight", "model.blocks.0.attn.qkv.weight"} <= changed(three, four)


def test_until_then_it_is_the_run_whose_backbone_is_frozen(cli):
    options = ["optimizer.trained=head", "model.drop_rate=0.5"]  # what is frozen drops nothing
    later = weights_after(cli, 3, *options, "optimizer.unfreeze_step=3", name="later")
    frozen = weights_after(cli, 3, *options, name="frozen")
    assert changed(later, frozen) == set()


@pytest.mark.parametrize("algorithm", [partial(torch.optim.AdamW, eps=1e-12), partial(Lamb, eps=1e-12)])
def test_what_learns_later_begins_like_what_learns_at_once(algorithm):
    """Its first update is the learning rate long, whatever the optimizer has counted until then."""
    task = task_of(VisionTransformer(**vit_options()), algorithm, trained="head", unfreeze_step=3)
    optimizer = task.optimization.optimizer(task.groups)
    for global_step in range(4):
        task._trainer = SimpleNamespace(global_step=global_step)
        before = task.model.norm.bias.detach().clone()
        for parameter in task.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        task.drop_frozen_gradients(optimizer)
        optimizer.step()
        moved = (before - task.model.norm.bias).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 0.1 if global_step == 3 else 0.0))


def test_parts_that_never_learn_stay_as_in_evaluation():
    vit = task_of(VisionTransformer(**vit_options(drop_rate=0.5, drop_path_rate=0.5)), trained="head").train()
    images = torch.randn(4, 1, 32, 32)
    assert vit.model(images).equal(vit.model(images))  # no dropout
    resnet = torchvision_model(name="resnet18", patch_size=None, in_chans=1, num_classes=10, small_images=True)
    task = task_of(resnet, trained="head").train()
    before = {name: buffer.clone() for name, buffer in resnet.named_buffers()}
    task.model(images)
    assert all(buffer.equal(before[name]) for name, buffer in resnet.named_buffers())


def test_parts_that_learn_later_are_in_training_from_that_step_on():
    task = task_of(VisionTransformer(**vit_options(drop_rate=0.5)), trained="head", unfreeze_step=3)
    images = torch.randn(4, 1, 32, 32)
    drops = []
    task._trainer = SimpleNamespace(global_step=0)
    task.train()
    for task._trainer.global_step in range(5):
        task.unfreeze_due_groups()
        drops.append(not task.model(images).equal(task.model(images)))
    assert drops == [False, False, False, True, True]


@pytest.mark.parametrize("scaled", [False, True], ids=["float32", "float16 loss scale"])
@pytest.mark.parametrize("fused", [False, True])
def test_gradients_are_clipped_to_the_norm_that_is_stated(fused, scaled):
    """Under float16 gradients come multiplied by a scale, which fused optimizers take away themselves, too late."""
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), torch.optim.AdamW)
    groups = [{"params": task.model.parameters(), "from_step": 0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    task.trainer = SimpleNamespace(global_step=1, precision_plugin=SimpleNamespace(scaler=scaler))
    loss = task.model(100 * torch.ones(8, 1, 2, 2)).pow(2).mean()
    (scaler.scale(loss) if scaler else loss).backward()
    if scaler and not fused:
        scaler.unscale_(optimizer)  # as Lightning does before it calls the task
    plain = torch.autograd.grad(task.model(100 * torch.ones(8, 1, 2, 2)).pow(2).mean(), task.model.parameters())
    norm = nn.utils.get_total_norm(plain)
    assert norm > 10
    task.configure_gradient_clipping(optimizer, 1.0)
    assert task.grad_norm.compute().item() == pytest.approx(norm.item(), rel=1e-5)
    clipped = [parameter.grad for parameter in task.model.parameters()]
    torch.testing.assert_close(clipped, [g / norm for g in plain], rtol=1e-4, atol=1e-6)
    if scaler:
        before = task.model[1].weight.detach().clone()
        scaler.step(optimizer)
        assert not task.model[1].weight.equal(before)


def test_balanced_class_weights_are_one_in_the_mean_and_hold_in_training_alone():
    counts = torch.tensor([30, 10, 20, *[20] * 7])
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), class_weights="balanced")
    task.plan(
        5,
        SimpleNamespace(
            class_shares=lambda: counts,
            class_names=list("abcdefghij"),
            targets=OneClass([]),
            images=ONE_VIEW,
            splits={"train": range(200)},
        ),
        {},
    )
    assert (task.class_factors * counts).sum() / counts.sum() == pytest.approx(1.0)
    assert task.class_factors[1] == pytest.approx(3 * task.class_factors[0])
    batch = Batch((View(torch.randn(2, 1, 2, 2)),), torch.tensor([0, 1]), torch.arange(2))
    plain = task.loss(task.model(batch.view.inputs), batch.target)
    torch.testing.assert_close(task.training_losses(batch), plain * task.class_factors[:2])
    torch.testing.assert_close(
        task.evaluate_batch(batch, "val")[0], task.loss.func(task.model(batch.view.inputs), batch.target)
    )


def test_balanced_class_weights_need_images_of_every_class():
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), class_weights="balanced")
    data = SimpleNamespace(
        class_shares=lambda: torch.arange(10),
        class_names=list("abcdefghij"),
        targets=OneClass([]),
        images=ONE_VIEW,
    )
    with pytest.raises(ConfigError, match="'a' has none"):
        task.plan(5, data, {})


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("inverse", "neither balanced nor a list"),
        (2.0, "neither balanced nor a list"),
        ([1.0, 2.0], "holds 2 factors; give 10"),
        ([float("nan")] * 10, "none below 0"),
    ],
)
def test_class_weights_that_make_no_sense_are_refused(weights, words):
    with pytest.raises(ValueError, match=words):
        task_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), class_weights=weights)


def test_the_optimizer_takes_the_parameters_that_stand_where_they_stood():
    """As a strategy leaves them that puts its own tensors in their place."""
    model = VisionTransformer(**vit_options(image_size=8, depth=1, embed_dim=8))
    task = task_of(model)
    task.num_steps, names = 1, [group["names"] for group in task.groups]
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))
    optimizer = task.configure_optimizers()["optimizer"]
    own = dict(model.named_parameters())
    for group, own_names in zip(optimizer.param_groups, names, strict=True):
        assert [id(parameter) for parameter in group["params"]] == [id(own[name]) for name in own_names]


def test_gradients_of_a_sharded_model_are_clipped_to_their_whole_norm():
    task, sharded = (task_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 10))) for _ in range(2))
    sharded.load_state_dict(task.state_dict())
    with one_process() as mesh:
        fully_shard(sharded.model, mesh=mesh)
        for one in (task, sharded):
            one.model(100 * torch.ones(8, 1, 2, 2)).pow(2).mean().backward()
            one.clip_gradients(1.0)
        norms = [one.grad_norm.compute().item() for one in (task, sharded)]
        assert norms[0] > 10
        assert norms[1] == pytest.approx(norms[0], rel=1e-6)
        for parameter, own in zip(task.parameters(), sharded.parameters(), strict=True):
            torch.testing.assert_close(unshard_tensor(own.grad), parameter.grad)


def test_parts_learn_whose_parameters_a_strategy_has_replaced():
    """Also while it has gathered them: what module.parameters() gives then is in no optimizer."""
    task = task_of(VisionTransformer(**vit_options(drop_rate=0.5)), trained="head", unfreeze_step=3)
    task._trainer = SimpleNamespace(global_step=3)
    with one_process() as mesh:
        fully_shard(task.model, mesh=mesh)
        task.num_steps = 5
        task.configure_optimizers()
        with torch.no_grad():
            task.model(torch.randn(4, 1, 32, 32))  # and stays gathered
        assert not any(isinstance(parameter, DTensor) for parameter in task.parameters())
        assert all(module.training for module in task.train().model.modules())
        task._trainer.global_step = 2
        assert not any(module.training for module in task.train().model.blocks.modules())
