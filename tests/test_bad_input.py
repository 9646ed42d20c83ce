"""What a user gets wrong is answered with one sentence, the right exit status, and nothing left behind."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import SRC, TINY, chosen, image_folder, refuses
from PIL import Image

from vitlab.config.build import import_target
from vitlab.errors import ConfigError

FOLDER = ["data=folder", "data.source.root=images", "data.num_classes=2", "data.image_size=8", "global_batch_size=4"]


def refused(run, status, *words):
    """One sentence on stderr that holds the words, and nothing left behind."""
    lines = [line for line in run.err.splitlines() if line.strip() and "Warning" not in line and "warn" not in line]
    assert run.status == status, run.err
    assert len(lines) == 1, run.err
    for word in words:
        assert word in lines[0]
    assert not run.folder.exists()


FEW_IMAGES_FOR_FOUR = ["data=synthetic", "data.num_classes=2", "data.source.num_samples=20", "global_batch_size=4"]
FEW_IMAGES_FOR_FOUR += ["trainer=ddp", "trainer.devices=4", "trainer.accelerator=cpu"]


@pytest.mark.parametrize(
    ("overrides", "status", "words"),
    [
        (["data.image_size=30"], 2, ["image_size 30", "patch_size 4"]),
        (["model.num_heads=5"], 2, ["embed_dim 32", "num_heads 5"]),
        (["data.num_classes=11"], 2, ["data.num_classes is 11", "data.num_classes=10"]),
        (["data.in_chans=3", "data.mean=[0,0,0]", "data.std=[1,1,1]"], 2, ["data.in_chans is 3", "data.in_chans=1"]),
        (["model.in_chans=3"], 2, ["model.in_chans is 3", "data.in_chans is 1"]),
        (["model.num_classes=5"], 2, ["model.num_classes is 5", "data.num_classes is 10"]),
        (["data.mean=[0.1,0.2]"], 2, ["data.mean", "2 values", "data.in_chans is 1"]),
        (["data.device_batch_size=48"], 2, ["global_batch_size 64", "data.device_batch_size 48"]),
        (["global_batch_size=5000"], 2, ["global_batch_size 5000", "1258"]),
        (["monitor=val/acc2"], 2, ["monitor 'val/acc2'", "val/acc1"]),
        (["callbacks=[default,early_stopping]", "callbacks.early_stopping.monitor=val/f1"], 2, ["val/f1", "val/acc1"]),
        (["schedule.warmup_steps=5"], 2, ["warmup_ratio", "warmup_steps"]),
        (["schedule.warmup_ratio=null", "schedule.warmup_steps=10000"], 2, ["10000 steps", "shorten"]),
        (["data.loading.on_bad_image=ignore"], 2, ["on_bad_image 'ignore'", "error, skip"]),
        (["trainer.max_epochs=-1"], 2, ["trainer.max_epochs"]),
        (["trainer.max_epochs=many"], 2, ["trainer"]),
        (["trainer.precision=bf8"], 2, ["trainer", "bf8"]),
        (["+model.windows=4"], 2, ["model", "windows"]),
        (["model._target_=os.system"], 2, ["os.system"]),
        (["loss.label_smoothing=2"], 2, ["label_smoothing 2"]),
        (["trainer.precision=bf16-true"], 2, ["bf16-true", "bf16-mixed"]),
        (["name=bf16-true", "trainer.precision=${name}"], 2, ["bf16-true", "bf16-mixed"]),
        (["compile=true", "crop=native", "mixing=none"], 2, ["compile=true", "mixed sizes"]),
        (FEW_IMAGES_FOR_FOUR, 2, ["the val split holds 2 images, fewer than the 4 devices"]),
        (["trainer.max_steps=5000"], 2, ["trainer.max_steps 5,000", "1,520 steps of trainer.max_epochs 80"]),
        (["+trainer.overfit_batches=1"], 2, ["trainer.overfit_batches"]),
        (["data=folder", "data.source.root=images"], 3, ["there is no folder images", "train/<class>/*"]),
        (["recipe=few_labels_mae"], 2, ["model.pretrained has no value", "weights of vit_mu4, or to null"]),
        (["recipe=digits_distilled"], 2, ["teacher.pretrained has no value", "a run of recipe=digits_resnet"]),
        (["callbacks.best_model.monitor=val/loss"], 2, ["best_model.monitor is val/loss", "set only monitor"]),
        (
            ["optimizer.trained=head", "optimizer.unfreeze_step=1520"],
            2,
            ["unfreeze_step 1520", "end of the run at step 1520"],
        ),
        (["trainer.gradient_clip_val=0"], 2, ["gradient_clip_val 0 is not a number above 0", "null"]),
        (["+trainer.gradient_clip_algorithm=value"], 2, ["gradient_clip_algorithm", "clipped by their norm"]),
        (["+trainer.accumulate_grad_batches=4"], 2, ["global_batch_size and data.device_batch_size"]),
        (["callbacks=[default,ema]", "callbacks.ema.start_step=99999"], 2, ["callbacks.ema.start_step 99999"]),
        (["callbacks.evaluation_report.num_worst=0"], 2, ["num_worst 0"]),
        (["model.pool=max"], 2, ["pool 'max'", "cls, mean"]),
        (["model.drop_path_rate=1.5"], 2, ["drop_path_rate 1.5"]),
        (["data=folder", "data.source.root=nowhere", "data.num_classes=2"], 3, ["data.source.root", "nowhere"]),
        (["resume=nowhere"], 4, ["nowhere"]),
        (["trainer=ddp", "trainer.devices=3", "trainer.accelerator=cpu"], 2, ["global_batch_size 64", "3 devices"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value else None,
)
def test_wrong_values_are_refused(cli, overrides, status, words):
    refused(cli("train", *overrides, folder="run"), status, *words)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere_installed.optim.Lamb", "needs the package nowhere_installed; pip install nowhere_installed"),
        ("vitlab.optim.Lamp", "there is no vitlab.optim.Lamp; correct the name"),
    ],
)
def test_what_cannot_be_found_is_named(target, words):
    with pytest.raises(ConfigError, match=words):
        import_target(target, "optimizer.algorithm")


def test_an_empty_class_folder_is_refused(cli, tmp_path):
    image_folder(tmp_path / "images")
    (tmp_path / "images" / "train" / "emu").mkdir()
    run = cli("train", *FOLDER, "data.num_classes=3", folder="run")
    refused(run, 3, "emu", "holds no image")


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("known", [[], ["data.mean=[0.5,0.5,0.5]", "data.std=[0.2,0.2,0.2]"]])
def test_an_unreadable_image_is_named_before_the_first_step(cli, tmp_path, split, known):
    image_folder(tmp_path / "images", splits=("train", "val", "test"))
    (tmp_path / "images" / split / "cat" / "3.png").write_bytes(b"not a picture")
    words = [*FOLDER, *known, "trainer.max_epochs=3"]
    refused(cli("train", *words, folder="run"), 3, f"{split}/cat/3.png", "data.loading.on_bad_image=skip")
    assert refuses(cli("check", *TINY, *words), f"{split}/cat/3.png")


def test_a_list_that_names_a_missing_image_is_refused_by_check_too(cli, tmp_path):
    images = sorted(image_folder(tmp_path / "images").rglob("*.png"))
    rows = [f"{image.relative_to(tmp_path)},{image.parent.name}" for image in images]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, "gone.png,cat"]))
    words = ["data=listing", "data.source.file=list.csv", "global_batch_size=4"]
    assert refuses(cli("check", *TINY, *words), "gone.png: [Errno 2] No such file")
    refused(cli("train", *words, folder="run"), 3, "gone.png", "No such file")


def test_a_run_that_meets_an_unreadable_image_names_the_command_that_goes_on(cli, tmp_path, monkeypatch):
    image_folder(tmp_path / "images", splits=("train", "val", "test"))
    (tmp_path / "images" / "test" / "cat" / "3.png").write_bytes(b"not a picture")
    monkeypatch.setattr("vitlab.data.image_datamodule.CHECKED", 1)
    run = cli("train", *FOLDER, "trainer.max_epochs=1", folder="run")
    assert run.status == 3
    command = "train.py resume=run data.loading.on_bad_image=skip"
    assert run.err.strip().endswith(command)
    assert "3.png" in run.err
    assert "remove" not in run.err  # the data would be another, and the run could not be resumed
    assert cli("train", *command.split()[1:], tiny=False).status == 0


@pytest.mark.parametrize("split", ["train", "test"])
def test_unreadable_images_are_skipped_and_counted(cli, tmp_path, split):
    image_folder(tmp_path / "images", splits=("train", "val", "test"))
    (tmp_path / "images" / split / "cat" / "3.png").write_bytes(b"not a picture")
    run = cli("train", *FOLDER, "data.loading.on_bad_image=skip", "trainer.max_epochs=1", folder="run")
    assert run.status == 0, run.err
    assert f"1 unreadable images in {split}" in run.out


def test_a_last_batch_without_a_readable_image_is_skipped(cli, tmp_path):
    image_folder(tmp_path / "images", splits=("train", "val", "test"), count=9)
    (tmp_path / "images" / "test" / "emu").mkdir()
    for split in ("train", "val"):
        (tmp_path / "images" / split / "emu").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / split / "emu" / "0.png")
    (tmp_path / "images" / "test" / "emu" / "0.png").write_bytes(b"not a picture")  # 19 images in batches of 6
    options = ["data.num_classes=3", "data.loading.on_bad_image=skip", "global_batch_size=6", "trainer.max_epochs=1"]
    run = cli("train", *FOLDER, *options, folder="run")
    assert run.status == 0, run.err
    assert "1 unreadable images in test" in run.out


def test_an_error_in_a_worker_is_one_sentence(cli, tmp_path):
    image_folder(tmp_path / "images")
    Image.new("L", (8, 8)).save(tmp_path / "images" / "train" / "cat" / "5.png")
    options = ["data.in_chans=3", "crop=whole", "data.loading.num_workers=2", "trainer.max_epochs=3"]
    run = cli("train", *FOLDER, *options, folder="run")
    assert run.status == 3
    assert "Traceback" not in run.err
    assert "5.png has 1 channels" in run.err


def test_a_file_that_is_no_checkpoint_of_ours(cli, tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    refused(cli("train", "resume=other.ckpt", folder="run"), 4, "other.ckpt", "not written by vitlab")


def test_a_damaged_checkpoint(cli, tmp_path, digits_run):
    content = bytearray((digits_run / "checkpoints" / "best.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.ckpt").write_bytes(content)
    run = cli("evaluate", "run=damaged.ckpt")
    assert run.status == 4
    assert "damaged" in run.err


def test_a_checkpoint_of_another_model(cli, tmp_path, digits_run):
    checkpoint = torch.load(digits_run / "checkpoints" / "best.ckpt", weights_only=True)
    checkpoint["run"]["config"]["model"]["depth"] = 3
    torch.save(checkpoint, tmp_path / "other.ckpt")
    run = cli("evaluate", "run=other.ckpt")
    assert run.status == 4
    assert "another model" in run.err


def test_a_checkpoint_cannot_call_what_is_not_ours_nor_read_the_environment(cli, tmp_path, digits_run):
    checkpoint = torch.load(digits_run / "checkpoints" / "best.ckpt", weights_only=True)
    for value, word in (("os.system", "os.system"), ("${oc.env:HOME}", "resolver")):
        checkpoint["run"]["config"]["model"]["_target_"] = value
        torch.save(checkpoint, tmp_path / "evil.ckpt")
        run = cli("evaluate", "run=evil.ckpt")
        assert run.status == 2
        assert word in run.err


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_state(cli, monkeypatch):
    import vitlab.losses

    loss = vitlab.losses.softmax_cross_entropy
    calls = [0]

    def diverging(logits, target, **options):
        calls[0] += logits.requires_grad  # training steps only
        return loss(logits, target, **options) * (float("nan") if calls[0] > 30 else 1)

    monkeypatch.setattr(vitlab.losses, "softmax_cross_entropy", diverging)
    run = cli("train", "trainer.max_epochs=3", "callbacks.latest_state.every_n_steps=1", folder="run")
    assert run.status == 5
    assert "optimizer.lr" in run.err
    state = torch.load(run.folder / "checkpoints" / "latest.ckpt", weights_only=True)
    assert state["global_step"] == 30
    assert all(value.isfinite().all() for value in state["state_dict"].values())


def test_a_full_disk_ends_the_run_and_keeps_the_last_state(cli, monkeypatch):
    from vitlab.checkpoints import file

    save, calls = torch.save, [0]

    def full(*arguments, **options):
        calls[0] += 1
        if calls[0] > 2:
            raise OSError(28, "No space left on device")
        return save(*arguments, **options)

    monkeypatch.setattr(file, "torch", torch, raising=False)
    monkeypatch.setattr(torch, "save", full)
    run = cli("train", "trainer.max_epochs=3", "callbacks.latest_state.every_n_steps=1", folder="run")
    assert run.status == 6
    assert "No space left" in run.err
    assert {path.name for path in (run.folder / "checkpoints").iterdir()} == {"latest.ckpt", "previous.ckpt"}
    state = torch.load(run.folder / "checkpoints" / "latest.ckpt", weights_only=True)
    assert state["global_step"] == 2


@pytest.mark.slow
def test_a_run_folder_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    run = cli("train", "hydra.run.dir=file/run")
    assert run.status == 6
    assert "file/run" in run.err


@pytest.mark.slow
@pytest.mark.ci
def test_exit_statuses_of_the_real_process(tmp_path):
    """Of a key, and of a disk, both at once: each spends its time importing."""
    cases = {2: ["modle=x"], 6: ["hydra.run.dir=/dev/null/run"]}
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}  # Hydra shows a tracer more
    processes = {
        status: subprocess.Popen(
            [sys.executable, str(SRC / "train.py"), *chosen(*TINY, *overrides)],
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for status, overrides in cases.items()
    }
    for status, process in processes.items():
        _, err = process.communicate(timeout=120)
        assert process.returncode == status, err
        assert "Traceback" not in err
