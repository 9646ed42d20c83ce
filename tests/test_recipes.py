"""The recipes: their headers, their arithmetic, and twenty steps of each, whose losses are written down.

A recipe is run as it is, but on small images of waves and with a small model: optimizer, rates, schedule, loss,
augmentation, mixing and task stay. The warm-up is 5 of the 20 steps, as no recipe's own would end within them. Write
the losses of tests/recipe_losses.json anew, after a change that is meant, with `python tests/test_recipes.py`.

They are float32. With one thread or two, with oneDNN or without, with AVX2 or AVX-512 they differ by 2e-7 of their
value; the smallest change of a setting that was tried, a weight decay of 0.02 for 0.05, moves them by 2e-6. Processors
without AVX may draw random numbers otherwise, and there the losses only have to be near.
"""

import functools
import json
import re
import shlex
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf, open_dict
from reading import write_numbers
from test_configs import NEEDED, composed
from torch import nn

from vitlab.config.build import build
from vitlab.config.home import EXPERIMENTS
from vitlab.config.nodes import resolve_config
from vitlab.counting import multiply_accumulates
from vitlab.run.building.autoconfig import find_values
from vitlab.run.building.model import build_model
from vitlab.run.building.parts import build_task
from vitlab.tasks.teacher import Norm, Teacher

FILES = {file.stem: file for file in sorted((EXPERIMENTS / "recipe").glob("[!_]*.yaml"))}
LOSSES = Path(__file__).parent / "recipe_losses.json"
NUM_STEPS = 20
CACHE = tempfile.TemporaryDirectory()
TOLERANCE = 1.5e-6 if torch.backends.cpu.get_cpu_capability().startswith("AVX") else 0.1  # of a loss
SENSITIVE = {  # by which recipes differ between processors: measured with AVX2 alone, 4e-6 and 2e-6
    "cifar10_cpu_resnet": 2e-5,  # batch norm over 16 images, at a learning rate of 0.1
    "digits_distilled": 4e-6,  # measured on an AMD processor with AVX2, 2.3e-6
    "mae_cifar10_cpu": 1e-5,  # Muon's directions are in bfloat16
    "digit_lines": 3e-4,  # the same, at a higher rate; measured 1.2e-4
    **dict.fromkeys(("digit_questions", "digit_questions_reader"), 2e-4),  # the same; measured 4.6e-5
}
TRAINING_IMAGES = {  # before a validation split is carved
    "imagenet": 1_281_167,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "mnist": 60_000,
}


@functools.cache
def recipe(name):
    option = f"recipe={name}"
    return composed(option, *NEEDED.get(option, []))


def header(name) -> dict[str, list[str]]:
    """The lines of each part of a recipe's first comment."""
    parts: dict[str, list[str]] = {}
    for line in FILES[name].read_text().split("\ndefaults:")[0].splitlines():
        if found := re.fullmatch(r"# ([A-Z][a-z]+) {2,}(\S.*)", line):
            lines = parts.setdefault(found[1], [])
            lines.append(found[2])
        elif found := re.fullmatch(r"# {11}(\S.*)", line):
            lines.append(found[1])
    return parts


def number(text: str) -> int:
    return int(text.replace(",", ""))


# -- what a header says


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_header_says_where_it_is_from_how_to_run_it_and_what_to_expect(name):
    assert {"Source", "Command", "Cost", "Expected"} <= header(name).keys()
    source = " ".join(header(name)["Source"])
    assert source == "ours" or re.search(r"arXiv:\d{4}\.\d{5}|https://", source)
    assert recipe(name).name == name
    assert re.search(
        r"±|standard deviation|seeds|one run|two runs|without a spread", " ".join(header(name)["Expected"])
    )


@pytest.mark.parametrize("name", [name for name in FILES if header(name)["Source"] == ["ours"]])
def test_a_recipe_of_ours_has_been_measured_and_says_how_often(name):
    expected = " ".join(header(name)["Expected"])
    assert re.search(r"\d\.\d+", expected)
    assert re.search(r"±|seeds|one run", expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_commands_of_a_header_compose(name):
    first, *more = header(name)["Command"]
    program, entry, *overrides = shlex.split(first)
    assert (program, entry, overrides[0]) == ("python", "src/train.py", f"recipe={name}")
    assert overrides[1:] == NEEDED.get(overrides[0], []) or composed(*overrides)
    for line in more:
        others = [word.strip(",;") for word in line.split() if re.match(r"[\w.@]+=\S", word)]
        if all(has_key(recipe(name), word.split("=")[0]) for word in others):
            continue
        if not any(word.startswith("recipe=") for word in others):
            composed(*overrides, *others)


def has_key(cfg, key: str) -> bool:
    parent, _, last = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return node is not None and last in node and not OmegaConf.is_config(node[last])


# -- the arithmetic


def steps_of(cfg, images: int) -> int:
    if cfg.trainer.max_steps >= 0:
        return cfg.trainer.max_steps
    return cfg.trainer.max_epochs * (round(images * (1 - cfg.data.split.val_fraction)) // cfg.global_batch_size)


@pytest.mark.parametrize("name", FILES)
def test_steps_and_batch_are_those_that_the_header_costs(name):
    cost = re.match(r"([\d,]+) steps of ([\d,]+)", " ".join(header(name)["Cost"]))
    if cost is None:
        assert header(name)["Source"] == ["ours"]
        return
    cfg, (data,) = recipe(name), re.findall(r"override /data: (\w+)", with_base(FILES[name]))
    assert number(cost[2]) == cfg.global_batch_size
    assert number(cost[1]) == steps_of(cfg, TRAINING_IMAGES.get(data, 0))


@functools.cache
def operations(model: str, image_size: int, in_chans: int) -> int:
    """Multiply-accumulates of a model's YAML for an image; of a masked autoencoder those with three quarters hidden."""
    node = OmegaConf.create(model)
    with torch.device("meta"):
        whole = build_model(node)
        count = multiply_accumulates(whole, (in_chans, image_size, image_size))
        if "encoder" in node:
            node.encoder.image_size = image_size // 2
            seen = build_model(node).encoder
            count -= multiply_accumulates(whole.encoder, (in_chans, image_size, image_size))
            count += multiply_accumulates(seen, (in_chans, image_size // 2, image_size // 2))
    return count


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if header(name)["Source"] != ["ours"]])
def test_the_hours_of_a_gpu_are_those_counted(name):
    """A backward pass takes two forward passes; an A100 has 312 TFLOP/s in bfloat16 (its datasheet), of which training
    gets two fifths."""
    cfg, data = recipe(name), re.findall(r"override /data: (\w+)", with_base(FILES[name]))[0]
    model = OmegaConf.to_yaml(OmegaConf.create(resolve_config(cfg)["model"]))
    passes = 1 if cfg.task._target_.endswith("LinearProbe") else 3  # the backbone is frozen
    count = passes * operations(model, cfg.data.image_size, cfg.data.in_chans)
    if "teacher" in cfg:
        teacher = OmegaConf.to_yaml(OmegaConf.create(resolve_config(cfg)["teacher"]))
        count += operations(teacher, cfg.data.image_size, cfg.data.in_chans)
    images = steps_of(cfg, TRAINING_IMAGES.get(data, 0)) * cfg.global_batch_size
    hours = 2 * count * images / (0.4 * 312e12) / 3600
    said = re.search(r"([\d.]+) A100-hours? by count", " ".join(header(name)["Cost"]))
    assert said, f"{hours:.2g}"
    assert float(said[1]) == pytest.approx(hours, rel=0.06)


def with_base(file: Path) -> str:
    text = file.read_text()
    bases = re.findall(r"^(?:  - |defaults: \[)(_\w+)\]?$", text, re.M)
    return text + "".join(with_base(file.parent / f"{base}.yaml") for base in bases)


@pytest.mark.parametrize("name", FILES)
def test_the_schedule_fits_the_run(name):
    cfg = recipe(name)
    num_steps = steps_of(cfg, 1_281_167)
    schedule = build(cfg.schedule, "schedule", num_steps=num_steps)
    factors = [schedule(step) for step in range(0, num_steps, max(1, num_steps // 500))]
    assert max(factors) == pytest.approx(1, abs=0.02)
    assert factors[0] < 0.05
    assert factors.index(max(factors)) < len(factors) / 3
    assert schedule(num_steps) == pytest.approx(cfg.schedule.final_ratio, abs=1e-9)


@pytest.mark.parametrize("name", FILES)
def test_patches_and_micro_batches_divide(name):
    cfg = recipe(name)
    assert cfg.model.get("patch_size") is None or cfg.data.image_size % cfg.model.patch_size == 0
    for size in re.findall(r"data\.device_batch_size=(\d+)", " ".join(header(name)["Command"])):
        assert cfg.global_batch_size % int(size) == 0


@pytest.mark.parametrize("name", [name for name in FILES if header(name)["Source"] != ["ours"]])
def test_a_published_recipe_takes_what_its_header_says_was_published(name):
    cfg, chosen = recipe(name), dict(re.findall(r"override /(model|data): (\w+)", with_base(FILES[name]))[::-1])
    images = TRAINING_IMAGES.get(chosen["data"], 0)
    size, crop = cfg.data.image_size, cfg.crop.get("eval", {})
    model, data, weights, facts = re.fullmatch(r"(\S+) on (\S+) from ([^\s,]+), (.+)", takes(name)).groups()
    assert (model, data) == (chosen["model"], chosen["data"])
    assert cfg.model.pretrained == (None if weights == "scratch" else weights)
    for fact in facts.split(", "):
        if found := re.fullmatch(r"lr (\S+)", fact):
            assert build(cfg.optimizer, "optimizer").scaled_lr == pytest.approx(float(found[1]))
        elif found := re.fullmatch(r"([\d,]+) steps of warm-up", fact):
            steps = cfg.schedule.warmup_steps or cfg.schedule.warmup_ratio * steps_of(cfg, images)
            assert steps == pytest.approx(number(found[1]), rel=1e-3)
        elif found := re.fullmatch(r"tested at (\d+) of (\d+) px", fact):
            assert (size, crop.get("resize_size", size)) == (int(found[1]), int(found[2]))
        else:
            assert fact == f"{cfg.data.num_classes} classes"


def takes(name) -> str:
    return " ".join(header(name)["Takes"])


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_monitors_what_its_task_gives(name):
    cfg = recipe(name)
    task = get_object(cfg.task._target_)
    monitors = {node.monitor for node in cfg.callbacks.values() if "monitor" in node}
    made = SimpleNamespace(
        num_classes=cfg.data.get("num_classes"), has_classes=True, labels=getattr(task, "labels", None)
    )
    assert monitors | {cfg.monitor} <= set(task.monitors(made))


def test_the_teacher_is_the_published_one():
    teacher = recipe("deit_ti16_distilled_imagenet").teacher
    assert (teacher.name, teacher.pretrained) == ("regnety_160", "timm:regnety_160.deit_in1k")


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("vtab_")])
def test_a_task_of_vtab_has_about_a_thousand_labels(name):
    data, classes = recipe(name).data, int(re.search(r"(\d+) classes", takes(name))[1])
    images = data.split.labels_per_class * classes
    nearest = min((classes * n for n in range(1, 501)), key=lambda count: abs(count - 1000))
    assert images == nearest


def test_the_probe_scales_its_grid():
    cfg = recipe("mae_b16_imagenet_probe")
    factor = cfg.global_batch_size / cfg.optimizer.lr_scaling_batch
    assert [lr * factor for lr in cfg.task.lr_grid] == pytest.approx([6.4])


# -- twenty steps


class Losses(pl.Callback):
    """The loss of every step."""

    def __init__(self):
        self.values = []

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.values.append(float(outputs["loss"]))


def shrunk(name):
    """The recipe for a small model, small images and small batches; what else it states is left as it is."""
    cfg = recipe(name).copy()
    with open_dict(cfg):
        cfg.optimizer.global_batch_size = cfg.global_batch_size  # the rates stay
        cfg.global_batch_size = 16
        cfg.schedule.update({"warmup_ratio": 0.25, "warmup_steps": None})
        cfg.trainer.update({"precision": "32-true", "accelerator": "cpu", "devices": 1})
        if "file" in cfg.data.source:
            cfg.data.source.file = write_numbers(Path(CACHE.name) / "numbers.tsv")
            cfg.data.update(dict.fromkeys(("vocab_size", "max_length", "input_vocab_size", "input_max_length")))
        if {"decoding", "templates"} & set(cfg.task):  # texts are its own, and small as they are
            return cfg
        channels = cfg.data.in_chans
        cfg.data.update({"num_classes": 10, "image_size": 32})
        cfg.data.loading.num_workers, cfg.data.split.val_fraction, cfg.data.cache.root = 0, 0.1, CACHE.name
        cfg.data.split.labels_per_class = cfg.data.split.labels_per_class and 10
        cfg.data.source = {
            "_target_": "vitlab.data.Synthetic",
            "num_samples": 400,
            "num_classes": 10,
            "in_chans": channels,
            "image_size": 32,
            "noise": 0.1,
        }
        encoder = cfg.model.get("encoder", cfg.model)
        if "embed_dim" in encoder:
            encoder.update({"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2})
        else:
            encoder.update({"depth": 8, "width": 4})
        if encoder.get("representation_dim") is not None:
            encoder.representation_dim = 32
        if encoder is not cfg.model:
            cfg.model.update({"decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 2})
    return cfg


def small_teacher(cfg):
    norm = Norm(list(cfg.data.mean), list(cfg.data.std))
    layers = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * cfg.data.in_chans, cfg.data.num_classes))
    return Teacher(layers, given=norm, wanted=norm, image_size=32)


def losses_of(name) -> list[float]:
    cfg = shrunk(name)
    with open_dict(cfg):
        del cfg.name
        cfg.model.pretrained = None
    return twenty_steps(OmegaConf.to_yaml(cfg))


@functools.cache
def twenty_steps(config: str) -> list[float]:
    """Once for recipes that are one but for their data."""
    cfg = OmegaConf.create(config)
    losses = Losses()
    averages = [build(cfg.callbacks[key], key) for key in ("ema", "swa") if key in cfg.callbacks]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=NUM_STEPS,
        gradient_clip_val=cfg.trainer.gradient_clip_val,
        use_distributed_sampler=False,
        limit_val_batches=0,
        callbacks=[losses, *averages],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    cfg, datamodule, *_ = find_values(cfg)
    datamodule.attach(trainer)
    pl.seed_everything(cfg.seed, workers=False, verbose=False)
    model, teacher = build_model(cfg.model), small_teacher(cfg) if "teacher" in cfg else None  # drawn in this order
    task = build_task(cfg, model, teacher, datamodule.vocabulary)
    task.plan(datamodule.plan(), datamodule, {})
    trainer.fit(task, datamodule=datamodule)
    return losses.values


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_the_first_losses_are_those_written_down(name):
    recorded = json.loads(LOSSES.read_text())
    assert losses_of(name) == pytest.approx(recorded[name], rel=max(TOLERANCE, SENSITIVE.get(name, 0.0)))


def test_losses_are_written_down_for_the_recipes_that_there_are():
    recorded = json.loads(LOSSES.read_text())
    assert recorded.keys() == FILES.keys()
    assert all(len(losses) == NUM_STEPS for losses in recorded.values())


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {[float(f'{loss:.8g}') for loss in losses_of(name)]}" for name in FILES]
    LOSSES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
