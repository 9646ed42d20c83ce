"""python src/check.py, as a user runs it."""

import re
import shutil
import time
from types import SimpleNamespace

import pytest
from coloured import ask
from conftest import refuses
from own_images import colour, pngs
from test_own_questions import OWN

SMALL = ["model=vit_mu4", "trainer=cpu", "trainer.precision=32-true", "seconds=0.05", "data.loading.num_workers=0"]

THREE_COPIES = ["trainer=hsdp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.strategy.copies=3"]


def line(run, name):
    return next(line for line in run.out.splitlines() if line.startswith(name)).removeprefix(name).strip()


def test_a_run_that_would_train_is_told_what_it_takes_and_nothing_is_written(cli, tmp_path):
    run = cli("check", *SMALL, "trainer.max_epochs=3", "optimizer.lr=1e-3")
    assert run.status == 0, run.err
    assert "vit_mu4_digits, 28,458 parameters" in line(run, "run")
    assert "57 of 64 images (19 an epoch" in line(run, "steps")
    assert "for each of 64 images" in line(run, "memory")
    assert "images/s" in line(run, "speed")
    assert "an epoch" in line(run, "time")
    assert line(run, "answer") == "yes"
    assert not list(tmp_path.iterdir())


def test_ones_own_images_are_measured_as_they_are_found(cli, tmp_path):
    pngs(tmp_path / "own", {"a": 40, "b": 40}, colour)
    run = cli("check", *SMALL, "data=folder", f"data.source.root={tmp_path / 'own'}", "data.source.index_root=null")
    assert run.status == 0, run.err
    assert "data.image_size=40" in line(run, "found")
    assert "images/s" in line(run, "speed")


def test_ones_own_questions_are_measured_as_they_are_found(cli, tmp_path):
    ask(tmp_path)
    run = cli("check", *OWN, "seconds=0.05")
    assert run.status == 0, run.err
    assert "data.input_max_length=14" in line(run, "found")
    assert "images/s" in line(run, "speed")


def test_sizes_below_a_gib_are_in_mib_and_steps_that_nobody_asked_for_are_not_measured(cli):
    run = cli("check", *SMALL, "seconds=0", "memory_gib=0.5")
    assert run.status == 0, run.err
    assert re.match(r"[\d.]+ MiB of 512.00 MiB on each device", line(run, "memory"))
    assert line(run, "speed") == "not measured: not asked for"


@pytest.mark.slow
@pytest.mark.parametrize(
    "regime",
    [
        ["task=multilabel", "data=synthetic_multilabel"],
        ["task=linear_probe", "optimizer=sgd"],
        ["task=masked_autoencoding", "model=mae_xs4"],
        ["task=self_distillation", "model=dino_xs4", "crop=multi_crop", "crop.train.small.image_size=16"],
        ["task=distillation", "teacher.pretrained=RUN"],
        ["model=resnet20", "callbacks=[default,ema]"],
    ],
    ids=lambda words: words[0].partition("=")[2],
)
def test_every_regime_is_measured(cli, digits_run, regime):
    options = [word.replace("RUN", str(digits_run)) for word in regime]
    run = cli("check", *SMALL[1:], *(SMALL[:1] if "model=" not in str(options) else []), *options, "seconds=1")
    assert run.status == 0, run.err
    assert "images/s" in line(run, "speed")


@pytest.mark.slow
def test_what_is_too_large_to_measure_here_is_counted_without_its_numbers(cli):
    run = cli("check", "model=vit_h14", "data=synthetic", "data.image_size=224", "trainer=cpu", "memory_gib=80")
    assert run.status == 0, run.err
    assert "not measured" in line(run, "speed")
    assert "of 80.00 GiB" in line(run, "memory")


@pytest.mark.slow
def test_a_large_model_is_checked_within_seconds(cli):
    """Of the processor, beyond imports: other programs may have it in between."""
    large = ["model=vit_b16", "data=synthetic", "data.image_size=224", "trainer=cpu"]
    assert cli("check", *SMALL, "seconds=0").status == 0
    before = time.process_time()
    assert cli("check", *large).status == 0
    assert time.process_time() - before < 8


def gib(run, name, what):
    number, unit = re.search(rf"([\d.]+) ([GM])iB {what}", line(run, name)).groups()
    return float(number) / {"G": 1, "M": 1024}[unit]


@pytest.mark.slow
def test_each_strategy_has_a_row_and_that_of_the_run_is_what_a_device_is_asked_for(cli):
    """Two machines of four devices."""
    options = ["model=vit_s16", "data=synthetic", "data.image_size=224", "seconds=0", "trainer.precision=32-true"]
    options += ["trainer.accelerator=cpu", "trainer.devices=4", "trainer.num_nodes=2", "memory_gib=8"]
    runs = {name: cli("check", *options, f"trainer={name}") for name in ("ddp", "fsdp", "hsdp")}
    for name, run in runs.items():
        assert run.status == 0, run.err
        assert gib(run, name, "in training") == gib(run, "memory", "of 8.00 GiB on each device")
    parameters = int(line(runs["ddp"], "ddp").partition(" ")[0].replace(",", ""))
    for name, devices in {"fsdp": 8, "hsdp": 4}.items():
        assert line(runs["ddp"], name) == line(runs[name], name)
        assert line(runs["ddp"], name).startswith(f"{-(-parameters // devices):,} parameters")
    weights = 4 * parameters / 2**30
    held = [4 * weights / devices for devices in (1, 8, 4)]  # weights, gradients and two averages of Adam
    found = [gib(runs["ddp"], name, "and its activations") for name in ("ddp", "fsdp", "hsdp")]
    assert found == pytest.approx([held[0], held[1] + weights, held[2] + weights], abs=0.01)
    assert gib(runs["ddp"], "fsdp", "in training") < gib(runs["ddp"], "hsdp", "in") < gib(runs["ddp"], "ddp", "in")


def test_a_device_that_cannot_gather_the_weights_for_an_evaluation_is_refused(cli):
    options = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=8", "seconds=0", "logger=none"]
    run = cli("check", "model=vit_mu4", *options, "trainer.precision=32-true", "memory_gib=0.0001")
    assert run.status == 2
    assert "an evaluation gathers all weights on each device" in run.err


@pytest.mark.parametrize(
    ("overrides", "status", "words"),
    [
        (["memory_gib=0.005"], 2, "data.device_batch_size="),
        (["global_batch_size=65", "data.device_batch_size=2"], 2, "not a multiple of data.device_batch_size 2"),
        (["monitor=val/nothing"], 2, "val/nothing"),
        (["optimizer.lrr=1"], 2, "optimizer.lrr"),
        (["resume=nowhere"], 4, "nowhere"),
        (["memory_gib=0"], 2, "memory_gib"),
        (["memory_gib=0.001"], 2, "a device of 1.02 MiB"),
        (["sweep=x"], 2, "sweep=x names a sweep, but the command starts one run"),
        ([*THREE_COPIES, "seconds=0"], 2, "copies 3 does not divide the 2 devices"),
    ],
)
def test_what_would_not_train_is_refused_as_the_training_would(cli, tmp_path, overrides, status, words):
    run = cli("check", *SMALL, *overrides)
    assert run.status == status
    assert words in run.err
    assert "Traceback" not in run.err
    assert "answer" not in run.out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_batch_that_is_advised_is_one_that_fits(cli):
    refused = cli("check", *SMALL, "memory_gib=0.005")
    advised = refused.err.rpartition("set ")[2].strip()
    assert cli("check", *SMALL, "memory_gib=0.005", advised).status == 0


def test_a_folder_that_is_named_is_the_only_one_that_is_looked_at(cli, tmp_path, short_run):
    shutil.copytree(short_run, tmp_path / "runs" / "vit_mu4_digits" / "other")
    named = ["resume=auto", "seconds=0", f"hydra.run.dir={tmp_path / 'runs' / 'vit_mu4_digits' / 'other'}"]
    for words in (named, named[1:]):
        run = cli("check", *SMALL, *words)
        assert refuses(run, "holds a run; resume it with resume="), run.err


def test_a_disk_without_room_is_refused(cli, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    for command, words in {"check": SMALL, "train": []}.items():
        run = cli(command, *words)
        assert run.status == 6
        assert "hydra.run.dir" in run.err


@pytest.mark.slow
def test_a_run_is_checked_before_it_is_gone_on_with(cli, short_run):
    again = cli("check", f"resume={short_run}", "trainer.max_epochs=3", "seconds=0.05")
    assert again.status == 0, again.err
    assert "12 of 64 images" in line(again, "steps")
    other = cli("check", f"resume={short_run}", "model.depth=1")
    assert other.status == 2
