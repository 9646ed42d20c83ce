"""A run that is killed and resumed is the uninterrupted run, bit for bit."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from conftest import BARE, FEW, SRC, TINY, chosen, image_folder, mostly_slow
from reading import READER, TOWERS, WRITER

from vitlab.checkpoints import file
from vitlab.checkpoints.chain import read_chain

OPTIONS = [
    *BARE,
    # shuffling, augmentation, mixing, dropout, accumulation, EMA: all that draws or carries
    "trainer.max_epochs=3",
    "data.split.labels_per_class=26",
    "global_batch_size=64",
    "data.device_batch_size=32",
    "mixing=mixup_cutmix",
    "model.drop_rate=0.1",
    "model.drop_path_rate=0.1",
    "callbacks=[default,ema]",
    "callbacks.ema.decay=0.8",
    "callbacks.latest_state.every_n_steps=3",
]  # 4 steps of 2 micro-batches an epoch, 12 steps


class Killed(BaseException):
    """Stands for kill -9: nothing in the run may handle it."""


@pytest.fixture
def killed_at(monkeypatch):
    """End the process's run at a given micro-batch, as a kill would: what is on the disk stays, nothing else does."""
    from vitlab.tasks import Task

    step = Task.training_step

    def arm(micro_batch):
        calls = [0]

        def counted(self, batch, batch_idx):
            calls[0] += 1
            if micro_batch is not None and calls[0] > micro_batch:
                raise Killed
            return step(self, batch, batch_idx)

        monkeypatch.setattr(Task, "training_step", counted)

    return arm


def same_tensors(a, b):
    """Whether two nested structures of tensors and plain types are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_tensors(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same_tensors(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def states(folder):
    latest = file.read(folder / "checkpoints" / "latest.ckpt")
    best = file.read(folder / "checkpoints" / "best.ckpt")
    keys = ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers", "global_step")
    return [{key: latest[key] for key in keys}, best["state_dict"], best["score"], best["global_step"]]


@pytest.mark.parametrize("kills", [{13: 2}, pytest.param({7: 2, 8: 0, 9: 0}, marks=pytest.mark.slow)])
def test_killed_anywhere_and_resumed_is_bit_exact(cli, killed_at, kills):
    """Kills within a step, between steps, at an epoch's last batch, and just after one, with their numbers of workers,
    of which the batches know nothing; 24 micro-batches in all."""
    check_kills(cli, killed_at, OPTIONS, kills)


VIEWS = [
    *["task=self_distillation", "model=dino_xs4", "model.encoder.embed_dim=32", "model.encoder.depth=1"],
    *["model.encoder.num_heads=2", "model.hidden_dim=24", "model.bottleneck_dim=8", "model.num_prototypes=16"],
    *["crop=multi_crop", "crop.train.num_small=2", "crop.train.small.image_size=16", "task.momentum=0.9"],
]


@pytest.mark.slow
@pytest.mark.parametrize("cache", [pytest.param("none", marks=pytest.mark.ci), "device"])
def test_a_teacher_that_follows_and_its_centre_are_bit_exact(cli, killed_at, cache):
    """Views from workers, through their ring, or cut out on the device, and a teacher that follows each step."""
    options = [*TINY[1:], *VIEWS, *(o for o in OPTIONS if not o.startswith(("mixing", "model.")))]
    options += [f"data.cache.kind={cache}", "data.images.train_transform=null"]
    check_kills(cli, killed_at, options, {13: 2}, tiny=False)


@pytest.mark.slow
def test_killed_and_resumed_with_the_mean_of_weights_is_bit_exact(cli, killed_at):
    """Before the mean of the weights after steps 3, 5, 7, 9 and 11 begins, and in its midst."""
    mean = ["callbacks.swa.start_ratio=0.25", "callbacks.swa.every_n_steps=2"]
    options = [option for option in OPTIONS if "ema" not in option]
    check_kills(cli, killed_at, [*options, "callbacks=[default,swa]", *mean], {6: 0, 15: 0})


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "lamb", "lion", "muon"])
def test_killed_before_and_after_what_was_frozen_learns_is_bit_exact(cli, killed_at, optimizer):
    """The first four steps train the head alone, under every optimizer."""
    late = [f"optimizer={optimizer}", "optimizer.trained=head", "optimizer.unfreeze_step=4", "optimizer.lr=1e-3"]
    check_kills(cli, killed_at, [*OPTIONS, *late], {6: 0, 13: 0})


READING = ["model.decoder.drop_rate=0.1", "data.images.train_transform=null", "task.label_smoothing=0.1"]
OF_IMAGES = (
    "mixing",
    "model.",
    "data.split",
    "global_batch_size",
    "data.device",
)  # of OPTIONS, for images with classes


@pytest.mark.ci
@pytest.mark.slow
def test_a_reader_that_is_killed_and_resumed_is_bit_exact(cli, killed_at):
    """Lines are composed anew in each epoch, by workers or without."""
    own = [option for option in OPTIONS if not option.startswith(OF_IMAGES)]
    options = [*READER, *READING, *own, "data.source.num_lines=128", "data.device_batch_size=16"]
    check_kills(cli, killed_at, options, {13: 2}, tiny=False)


@pytest.mark.ci
@pytest.mark.slow
def test_images_and_texts_that_are_killed_and_resumed_are_bit_exact(cli, killed_at):
    """Scenes are composed anew in each epoch, by workers or without."""
    own = [option for option in OPTIONS if not option.startswith(OF_IMAGES)]
    options = [*TOWERS, *own, "data.source.num_scenes=128"]  # 4 steps an epoch, of one batch each
    check_kills(cli, killed_at, options, {7: 2}, tiny=False)


@pytest.mark.slow
def test_a_writer_of_numbers_that_is_killed_and_resumed_is_bit_exact(cli, killed_at):
    own = [option for option in OPTIONS if not option.startswith(OF_IMAGES)]
    options = [*WRITER, *READING[:1], *own, "data.source.num_numbers=366", "data.device_batch_size=32"]
    check_kills(cli, killed_at, options, {13: None}, tiny=False)


def check_kills(cli, killed_at, options, kills, tiny=True):
    killed_at(None)
    assert cli("train", *options, folder="whole", tiny=tiny).status == 0
    whole = states(Path("whole"))
    for kill, workers in kills.items():
        killed_at(kill)
        by = [] if workers is None else [f"data.loading.num_workers={workers}"]
        with pytest.raises(Killed):
            cli("train", *options, *by, folder=f"killed{kill}", tiny=tiny)
        killed_at(None)
        assert cli("train", f"resume=killed{kill}", tiny=tiny).status == 0
        resumed = states(Path(f"killed{kill}"))
        assert same_tensors(whole, resumed), f"killed after micro-batch {kill}"


@pytest.mark.slow
def test_kill_minus_nine_of_the_real_process(cli, tmp_path):
    """SIGKILL at an arbitrary moment in mid-epoch, then resume; against an uninterrupted run in this process."""
    options = [*OPTIONS, "trainer.max_epochs=15"]
    assert cli("train", *options, folder="whole").status == 0
    command = [sys.executable, str(SRC / "train.py"), *chosen(*TINY, *options, "hydra.run.dir=killed")]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    latest = tmp_path / "killed" / "checkpoints" / "latest.ckpt"
    deadline = time.monotonic() + 120
    while not latest.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.4)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    step = file.read(latest)["global_step"]
    assert 0 < step < 60
    assert cli("train", "resume=killed").status == 0
    assert same_tensors(states(tmp_path / "whole"), states(tmp_path / "killed"))
    with open(tmp_path / "killed" / "metrics.csv", newline="") as f:
        steps = [int(row["step"]) for row in csv.DictReader(f)]
    assert steps == sorted(set(steps))  # earlier rows kept, each step once
    assert steps[-1] == 60
    starts = json.loads((tmp_path / "killed" / "provenance.json").read_text())
    assert [start["from_step"] for start in starts] == [0, step]


@pytest.mark.slow
def test_a_sigterm_to_all_processes_of_a_run_saves_its_state(cli, tmp_path):
    """As `timeout` and Slurm send it: the data workers must outlive it, or the step cannot be finished."""
    options = [*OPTIONS, "trainer.max_epochs=500", "data.loading.num_workers=2"]
    command = [sys.executable, str(SRC / "train.py"), *chosen(*TINY, *options, "hydra.run.dir=run")]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    latest = tmp_path / "run" / "checkpoints" / "latest.ckpt"
    deadline = time.monotonic() + 120
    while not latest.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert "stopped, state saved" in output
    step = file.read(latest)["global_step"]
    assert cli("train", "resume=run", "trainer.max_epochs=-1", f"trainer.max_steps={step + 1}").status == 0


@pytest.mark.parametrize(("number", "status"), mostly_slow([(signal.SIGTERM, 143), (signal.SIGINT, 130)]))
def test_a_signal_outside_of_training_is_no_success_either(cli, monkeypatch, number, status):
    from vitlab.tasks import Classification

    step, sent = Classification.test_step, []

    def signalled(self, batch, batch_idx):
        if not sent:
            sent.append(os.kill(os.getpid(), number))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classification, "test_step", signalled)
    run = cli("train", *BARE, "trainer.max_epochs=1", "global_batch_size=256", folder="run")
    assert run.status == status


@pytest.mark.slow
def test_a_run_that_was_killed_after_it_had_stopped_early_does_not_train_on(cli, monkeypatch):
    from vitlab.tasks import Classification

    def killed(self, batch, batch_idx):
        raise Killed

    options = [*BARE, "callbacks=[default,early_stopping]", "callbacks.early_stopping.patience=1"]
    options += ["trainer.max_epochs=9", "data.split.labels_per_class=4", "global_batch_size=32", "optimizer.lr=1e-12"]
    with monkeypatch.context() as patch:
        patch.setattr(Classification, "test_step", killed)
        with pytest.raises(Killed):
            cli("train", *options, folder="run")
    assert file.read(Path("run/checkpoints/latest.ckpt"))["global_step"] == 2
    assert cli("train", "resume=run").status == 0
    assert json.loads(Path("run/result.json").read_text())["steps_of_this_start"] == 0
    patient = ["callbacks=[default,early_stopping]", "callbacks.early_stopping.patience=3"]  # what is added wins
    more = cli("train", "resume=run", *patient, tiny=False)
    assert more.status == 0, more.err
    assert file.read(Path("run/checkpoints/latest.ckpt"))["global_step"] == 4


def test_a_run_that_was_killed_in_its_test_keeps_its_chain(cli, monkeypatch):
    from vitlab.tasks import Classification

    def killed(self, batch, batch_idx):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Classification, "test_step", killed)
        with pytest.raises(Killed):
            cli("train", *FEW, "trainer.max_epochs=2", folder="run")
    before = read_chain(Path("run/chain.jsonl"))
    assert [line["step"] for line in before if "step" in line] == [4, 8]
    assert cli("train", "resume=run").status == 0
    chain = read_chain(Path("run/chain.jsonl"))
    assert chain[: len(before)] == before
    assert ["end" in line for line in chain[len(before) :]] == [True]


@pytest.mark.slow
def test_a_best_model_of_an_abandoned_future_is_reported_as_what_it_is(cli, killed_at):
    """Killed after a better model was kept than the latest state knows; resumed with no learning rate."""
    options = [
        *BARE,
        "trainer.max_epochs=4",
        "global_batch_size=256",
        "optimizer.lr=3e-3",
        "+trainer.val_check_interval=1",
    ]
    options += ["callbacks.latest_state.every_n_steps=100"]
    killed_at(7)
    with pytest.raises(Killed):
        cli("train", *options, folder="run")
    killed_at(None)
    kept = file.read(Path("run/checkpoints/best.ckpt"))
    assert file.read(Path("run/checkpoints/latest.ckpt"))["global_step"] == 4
    assert cli("train", "resume=run", "optimizer.lr=1e-12").status == 0
    best = file.read(Path("run/checkpoints/best.ckpt"))
    result = json.loads(Path("run/result.json").read_text())
    assert result["score"] == best["score"]["val/acc1"]
    assert result["best_step"] == best["global_step"]
    assert best["score"]["val/acc1"] >= kept["score"]["val/acc1"]


def test_weights_alone_cannot_be_resumed(cli, digits_run):
    before = (digits_run / "provenance.json").read_text()
    run = cli("train", f"resume={digits_run / 'checkpoints' / 'best.ckpt'}", "trainer.max_epochs=3", tiny=False)
    assert run.status == 4
    assert "latest.ckpt" in run.err
    assert (digits_run / "provenance.json").read_text() == before


@pytest.mark.ci
@pytest.mark.slow
def test_resume_keeps_the_average_and_the_parameter_groups(cli):
    options = [*BARE, "callbacks=[default,ema]", "trainer.max_steps=2", "global_batch_size=256"]
    options += ["model.position=sincos_2d", "model.class_token=false", "model.pool=mean"]  # groups of the same names
    assert cli("train", *options, folder="run").status == 0
    for override, word in (
        ("callbacks=[default]", "callbacks.ema"),
        ("callbacks=[default,swa]", "callbacks.ema"),
        ("optimizer.layer_decay=0.7", "layer_decay"),
        ("optimizer.trained=head", "trained"),
    ):
        run = cli("train", "resume=run", "trainer.max_steps=4", override, tiny=False)
        assert run.status == 2, run.err
        assert word in run.err


@pytest.mark.slow
def test_another_choice_of_a_resumed_run_refers_to_the_runs_own_values(cli, tmp_path):
    """What a choice takes from other keys, it takes from the run's, not from the defaults."""
    options = [*BARE, "trainer.max_steps=2", "global_batch_size=256", "seed=5", "task.monitor=val/loss"]
    assert cli("train", *options, folder="run").status == 0
    run = cli("train", "resume=run", "trainer.max_steps=3", "callbacks=[default,early_stopping]", tiny=False)
    assert run.status == 0, run.err
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    for callback in ("best_model", "early_stopping"):
        assert config["callbacks"][callback]["monitor"] == "val/loss"
        assert config["callbacks"][callback]["mode"] == "min"


@pytest.mark.slow
def test_on_other_devices_a_run_keeps_its_length_and_its_clipping(cli, tmp_path):
    options = [*BARE, "trainer.max_epochs=1", "trainer.gradient_clip_val=null", "global_batch_size=256"]
    assert cli("train", *options, folder="run").status == 0
    more = ["trainer=auto", "trainer.accelerator=cpu", "schedule.final_ratio=0.1", "trainer.max_epochs=2"]
    run = cli("train", "resume=run", *more, tiny=False)
    assert run.status == 0, run.err
    trainer = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    assert (trainer["devices"], trainer["max_epochs"], trainer["gradient_clip_val"]) == ("auto", 2, None)


@pytest.mark.slow
def test_callbacks_that_are_chosen_again_keep_their_values_and_those_of_the_task_stay(cli, tmp_path):
    model = ["model=mae_xs4", "model.encoder.embed_dim=32", "model.encoder.depth=1", "model.encoder.num_heads=2"]
    model += ["model.decoder_dim=16", "model.decoder_depth=1", "model.decoder_heads=2", "task=masked_autoencoding"]
    options = [*TINY[1:], *BARE, *model, "trainer.max_steps=1", "callbacks=[default,ema]", "callbacks.ema.decay=0.7"]
    run = cli("train", *options, folder="run", tiny=False)
    assert run.status == 0, run.err
    patient = ["callbacks.early_stopping.patience=7", "callbacks=[default,ema,early_stopping]"]
    run = cli("train", "resume=run", "trainer.max_steps=2", *patient, tiny=False)
    assert run.status == 0, run.err
    callbacks = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["callbacks"]
    assert callbacks["ema"]["decay"] == 0.7
    assert callbacks["early_stopping"]["patience"] == 7
    assert "reconstruction" in callbacks


@pytest.mark.ci
@pytest.mark.slow
def test_by_another_metric_nothing_is_the_best_yet(cli, tmp_path):
    options = [*BARE, "trainer.max_epochs=1", "global_batch_size=256"]
    assert cli("train", *options, folder="run").status == 0
    assert cli("train", "resume=run", "trainer.max_epochs=2", "monitor=val/loss", tiny=False).status == 0
    best = file.read(tmp_path / "run" / "checkpoints" / "best.ckpt")
    assert best["score"].keys() == {"val/loss"}
    assert best["run"]["config"]["callbacks"]["best_model"]["mode"] == "${better:${.monitor}}"
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["callbacks"]["best_model"]["mode"] == "min"
    assert best["global_step"] == 8  # the only validation since


def test_resume_takes_the_saved_config_and_the_command_line_wins(cli, tmp_path):
    assert cli("train", "trainer.max_epochs=1", "optimizer.lr=2e-3", "global_batch_size=256", folder="run").status == 0
    run = cli("train", "resume=run", "trainer.max_epochs=2", "optimizer.weight_decay=0.3", tiny=False)
    assert run.status == 0, run.err
    checkpoint = file.read(tmp_path / "run" / "checkpoints" / "latest.ckpt")
    assert checkpoint["global_step"] == 8
    config = checkpoint["run"]["config"]
    assert (config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == (2e-3, 0.3)
    assert config["model"]["embed_dim"] == 32
    assert {g["weight_decay"] for g in checkpoint["optimizer_states"][0]["param_groups"]} == {0.0, 0.3}
    starts = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert "optimizer.weight_decay=0.3" in starts[1]["command"]
    assert not (tmp_path / "runs").exists()  # the same folder, no other


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("seed=7", "seed"),
        ("model=vit_ti4", "model"),
        ("task=linear_probe", "task"),
        ("optimizer=sgd", "optimizer"),
        ("model.depth=1", "model.depth"),
        ("data=synthetic", "data"),
        ("crop=shifted", "crop"),
        ("crop.eval.interpolation=bicubic", "crop.eval.interpolation"),
        ("global_batch_size=32", "global_batch_size"),
        ("recipe=digits", "recipe"),
    ],
)
def test_resume_refuses_to_become_another_run(cli, digits_run, override, key):
    before = (digits_run / "config.yaml").read_text()
    run = cli("train", f"resume={digits_run}", override, tiny=False)
    assert run.status == 2
    assert run.err.strip().splitlines()[-1].startswith(f"ConfigError: {key}")
    assert (digits_run / "config.yaml").read_text() == before


def test_resume_refuses_other_data(cli, tmp_path):
    image_folder(tmp_path / "images")
    options = [
        "data=folder",
        "data.source.root=images",
        "data.num_classes=2",
        "data.image_size=8",
        "global_batch_size=4",
    ]
    assert cli("train", *options, "trainer.max_epochs=1", folder="run").status == 0
    next((tmp_path / "images" / "train" / "cat").iterdir()).unlink()
    run = cli("train", "resume=run", "trainer.max_epochs=2", tiny=False)
    assert run.status == 4
    assert "data" in run.err
