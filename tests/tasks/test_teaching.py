"""Learning from a teacher: what is minimised, what the teacher sees, and whole runs with each kind of teacher."""

import copy
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import BARE, vit_options
from omegaconf import OmegaConf
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torchvision.transforms import v2

from vitlab.checkpoints import file
from vitlab.data.batches.batch import Batch, View
from vitlab.data.targets import OneClass
from vitlab.errors import ConfigError
from vitlab.layers import patchify
from vitlab.losses import softmax_cross_entropy
from vitlab.models import DistilledVisionTransformer, VisionTransformer, torchvision_model
from vitlab.optim import Optimization, constant
from vitlab.tasks import Distillation
from vitlab.tasks.teacher import Norm, Teacher

NORM = Norm([0.3], [0.4])
QUICK = [*BARE, "trainer.max_steps=2", "schedule=constant", "schedule.warmup_ratio=0"]


def teacher_of(model, **changes):
    return Teacher(model, **({"given": NORM, "wanted": NORM, "image_size": 32} | changes))


def task_of(model, teacher, patch_size=4, **changes):
    neutral = {"layer_decay": 1.0, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    neutral |= {"lr_scaling": "none", "lr_scaling_batch": 256, "global_batch_size": 64, "weight_decay": 0.0}
    options = {"mode": "hard", "teacher_share": 0.5, "temperature": 3.0, "monitor": "val/acc1", "seed": 0} | changes
    task = Distillation(
        model=model,
        teacher=teacher,
        optimization=Optimization(algorithm=torch.optim.SGD, lr=0.1, unfreeze_step=None, hidden_only=False, **neutral),
        schedule=lambda num_steps: constant(num_steps, warmup_ratio=0.0, warmup_steps=None),
        loss=partial(softmax_cross_entropy, label_smoothing=0.0),
        num_classes=10,
        class_weights=None,
        **options,
    )
    task.patch_size = patch_size
    return task


def random_vit(kind=VisionTransformer, seed=0, **changes):
    torch.manual_seed(seed)
    model = kind(**vit_options(**changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.train()


def batch_of(images, target):
    return Batch((View(patchify(images, 4), (8, 8)),), target, torch.arange(len(images)))


@pytest.fixture
def batch():
    torch.manual_seed(1)
    return batch_of(torch.randn(6, 1, 32, 32), torch.randint(10, (6,)))


@pytest.fixture
def images(batch):
    torch.manual_seed(1)
    return torch.randn(6, 1, 32, 32)


# -- what is minimised


def test_hard_mode_teaches_the_distillation_head_the_teachers_class_alone(batch, images):
    model, teacher = random_vit(DistilledVisionTransformer), teacher_of(random_vit(seed=5))
    taught = teacher.model(images).argmax(dim=1)
    assert not torch.equal(taught, batch.target)
    task_of(model, teacher).training_losses(batch).mean().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if name.startswith("head")}
    for token, (head, target) in enumerate({"head": batch.target, "head_dist": taught}.items()):
        model.zero_grad()
        (0.5 * F.cross_entropy(model.compute_both_logits(*batch.view.arguments())[:, token], target)).backward()
        for name in (f"{head}.weight", f"{head}.bias"):
            torch.testing.assert_close(found[name], dict(model.named_parameters())[name].grad)


@pytest.mark.parametrize("kind", [VisionTransformer, DistilledVisionTransformer])
def test_soft_mode_is_equation_2(batch, images, kind):
    model, teacher = random_vit(kind), teacher_of(random_vit(seed=5))
    loss = task_of(model, teacher, mode="soft", teacher_share=0.1, temperature=3.0).training_losses(batch)
    logits = model.compute_both_logits(images) if kind is DistilledVisionTransformer else model(images)[:, None]
    p, q = (teacher.model(images) / 3).softmax(dim=1), (logits[:, -1] / 3).softmax(dim=1)
    divergence = (p * (p / q).log()).sum(dim=1)
    labels = F.cross_entropy(logits[:, 0], batch.target, reduction="none")
    torch.testing.assert_close(loss, 0.9 * labels + 0.1 * 9 * divergence)


def test_training_tells_how_often_the_teacher_and_the_student_are_right(batch, images):
    model, teacher = random_vit(DistilledVisionTransformer), teacher_of(random_vit(seed=5))
    batch = batch._replace(target=teacher.model(images).argmax(dim=1))
    batch.target[0] = (batch.target[0] + 1) % 10
    task = task_of(model, teacher)
    task.training_losses(batch)
    values = task.metrics["fit"].compute()
    assert values["teacher_acc1"] == pytest.approx(5 / 6)
    assert values["acc1"] == (model(images).argmax(dim=1) == batch.target).float().mean()


def digits():
    """Normalised images (n, 1, 8, 8), their classes, and a linear classifier that is right about most."""
    data = load_digits()
    images = torch.tensor(data.images[:600, None], dtype=torch.float32) / 8 - 1
    targets = torch.tensor(data.target[:600])
    fitted = LogisticRegression(max_iter=200).fit(images.flatten(1).numpy(), targets.numpy())
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    teacher[1].weight.data, teacher[1].bias.data = (
        torch.tensor(value, dtype=torch.float32) for value in (fitted.coef_, fitted.intercept_)
    )
    return images, targets, teacher


@pytest.mark.parametrize(("mode", "agreement"), [("soft", 0.9), ("hard", 0.8)])
def test_a_student_learns_from_a_teacher_without_any_labels(mode, agreement):
    images, targets, model = digits()
    torch.manual_seed(0)
    student = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    task = task_of(student, teacher_of(model, image_size=8), patch_size=None, mode=mode, teacher_share=1.0)
    shuffled = targets[torch.randperm(len(targets))]
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    for step in range(150):
        chosen = torch.arange(step * 64, step * 64 + 64) % 400  # the others are never seen
        optimizer.zero_grad()
        task.training_losses(Batch((View(images[chosen]),), shuffled[chosen], chosen)).mean().backward()
        optimizer.step()
    agreed = (student(images[400:]).argmax(dim=1) == model(images[400:]).argmax(dim=1)).float().mean()
    assert agreed > agreement


# -- what the teacher sees


def test_the_teacher_sees_the_images_that_the_student_sees_in_its_own_normalisation_and_size():
    class Seen(nn.Module):
        def forward(self, images):
            self.images = images
            return images.mean(dim=(2, 3))

    pixels = torch.rand(2, 3, 32, 24)
    given, wanted = Norm([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]), Norm([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    student = v2.functional.normalize(pixels, *given)
    model = Seen()
    Teacher(model, given=given, wanted=wanted, image_size=16)(student)
    expected = v2.functional.normalize(v2.functional.resize(pixels, [16, 16], antialias=True), *wanted)
    torch.testing.assert_close(model.images, expected, atol=1e-4, rtol=1e-4)
    square = student[..., :24, :]
    Teacher(model, given=given, wanted=given, image_size=24)(square)
    assert model.images is square  # nothing to do


def test_patches_are_put_together_again(batch, images):
    task = task_of(random_vit(), teacher_of(random_vit()))
    assert torch.equal(task.images(batch), images)
    task.patch_size = None
    assert task.images(batch) is batch.view.inputs


def test_the_teacher_is_no_part_of_the_task_and_does_not_learn(batch):
    model, teacher = (
        random_vit(),
        teacher_of(torchvision_model(name="resnet18", patch_size=None, in_chans=1, num_classes=10, small_images=False)),
    )
    before = copy.deepcopy(teacher.model.state_dict())
    task = task_of(model, teacher).train()
    task.training_losses(batch).mean().backward()
    assert not any(p.requires_grad or p.grad is not None for p in teacher.model.parameters())
    assert all(torch.equal(before[name], value) for name, value in teacher.model.state_dict().items())
    assert {id(p) for p in task.parameters()} == {id(p) for p in model.parameters()}
    assert all(name.startswith("model.") for name in task.state_dict())


# -- what is refused


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode 'medium' is not one of: soft, hard"):
        task_of(random_vit(), teacher_of(random_vit()), mode="medium")


def data_of(names, size=32):
    crop = SimpleNamespace(output_size=lambda: size)
    preprocessing = SimpleNamespace(patch_size=4)
    return SimpleNamespace(
        targets=OneClass([]),
        images=SimpleNamespace(num_views=1, train_crop=crop),
        class_names=names,
        preprocessing=preprocessing,
    )


def test_a_teacher_of_other_classes_is_refused():
    names = [str(number) for number in range(10)]
    task = task_of(random_vit(), teacher_of(random_vit(), class_names=names))
    task.plan(1, data_of(names), {})
    with pytest.raises(ConfigError, match=r"knows 10 classes \(0, 1, 2 …\), but the data has 10 classes \(9, 8"):
        task.plan(1, data_of(names[::-1]), {})
    with pytest.raises(ConfigError, match="images of one size"):
        task.plan(1, data_of(names, size=None), {})


# -- whole runs


@pytest.mark.ci
@pytest.mark.slow
def test_without_a_share_of_the_teachers_it_is_plain_training_bit_for_bit(cli, digits_run):
    options = [*BARE, "trainer.max_steps=3", "model.drop_rate=0.1", "mixing=mixup"]
    taught = ["task=distillation", f"teacher.pretrained={digits_run}", "task.mode=soft", "task.teacher_share=0"]
    runs = [cli("train", *options, folder="plain"), cli("train", *options, *taught, folder="taught")]
    assert [run.status for run in runs] == [0, 0], runs[1].err
    plain, taught = (file.read(run.folder / "checkpoints" / "latest.ckpt") for run in runs)
    assert plain["state_dict"].keys() == taught["state_dict"].keys()
    assert all(torch.equal(plain["state_dict"][name], value) for name, value in taught["state_dict"].items())


@pytest.mark.slow
def test_a_run_of_ours_teaches_and_is_not_needed_afterwards(cli, digits_run, tmp_path):
    shutil.copytree(digits_run / "checkpoints", tmp_path / "teacher" / "checkpoints")
    options = [*QUICK, "model=deit_ti16_distilled", "model.patch_size=8", "model.embed_dim=24", "model.depth=1"]
    options += ["trainer.log_every_n_steps=1", "callbacks=[default,ema]"]
    taught = ["task=distillation", "teacher.pretrained=teacher"]
    whole = cli("train", *options, *taught, "trainer.max_steps=4", folder="whole")
    assert whole.status == 0, whole.err
    assert "train/teacher_acc1" in (whole.folder / "metrics.csv").read_text()
    assert cli("train", *options, *taught, folder="part").status == 0
    (tmp_path / "teacher").rename(tmp_path / "gone")
    assert cli("evaluate", "run=part").status == 0
    alone = cli("train", "resume=part", "trainer.max_steps=4", tiny=False)
    assert alone.status == 4
    assert "teacher" in alone.err
    moved = cli(
        "train", "resume=part", "trainer.max_steps=4", "task=distillation", "teacher.pretrained=gone", tiny=False
    )
    assert moved.status == 0, moved.err
    a, b = (file.read(tmp_path / name / "checkpoints" / "latest.ckpt") for name in ("whole", "part"))
    assert a["global_step"] == b["global_step"] == 4
    assert all(torch.equal(value, b["state_dict"][name]) for name, value in a["state_dict"].items())


@pytest.mark.slow
def test_models_of_timm_and_torchvision_teach(cli, tmp_path):
    import timm

    sizes = {"num_classes": 10, "in_chans": 1, "img_size": 16}
    torch.save(timm.create_model("vit_tiny_patch16_224", **sizes).state_dict(), tmp_path / "tiny.pth")
    options = ["teacher.name=vit_tiny_patch16_224", "teacher.image_size=16", "teacher.pretrained=tiny.pth"]
    unsaid = cli("train", *QUICK, "task=distillation", "model@teacher=timm", *options)
    assert unsaid.status == 2
    assert "teacher.pretrained=tiny.pth does not state how its images were normalised" in unsaid.err
    options += ["+teacher.mean=[0.5]", "+teacher.std=[0.5]"]
    of_timm = cli("train", *QUICK, "task=distillation", "model@teacher=timm", *options, folder="of_timm")
    assert of_timm.status == 0, of_timm.err
    config = OmegaConf.create(file.read(of_timm.folder / "checkpoints" / "latest.ckpt")["run"]["config"])
    assert config.teacher.name == "vit_tiny_patch16_224"
    assert cli("train", *QUICK, "model=resnet18", "trainer.max_steps=1", folder="resnet").status == 0
    named = ["model@teacher=resnet18", "teacher.pretrained=resnet"]
    of_torchvision = cli("train", *QUICK, "task=distillation", *named, folder="of_torchvision")
    assert of_torchvision.status == 0, of_torchvision.err
    again = cli("train", "resume=of_torchvision", "task=distillation", "model@teacher=resnet50", tiny=False)
    assert again.status == 2
    assert "model@teacher is resnet18 in the run and resnet50 on the command line" in again.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "teacher.pretrained is null; give the weights of the teacher"),
        (["teacher.pretrained=nowhere"], "there is no run or checkpoint at nowhere"),
        (["model@teacher=vit_mu4", "teacher.pretrained=RUN", "teacher.num_classes=7"], "leaves head.weight random"),
        (["teacher.pretrained=RUN", "data.image_size=24", "data=synthetic"], "gives no logits for images of 3x32x32"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused_before_work(cli, digits_run, overrides, message):
    overrides = [override.replace("RUN", str(digits_run)) for override in overrides]
    run = cli("train", *QUICK, "task=distillation", *overrides, folder="refused")
    assert run.status in (2, 4)
    assert message in run.err
    assert not (run.folder / "metrics.csv").exists()
