"""The main job, end to end."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from conftest import BARE, FEW, mostly_slow
from omegaconf import OmegaConf
from PIL import Image

from vitlab.checkpoints import file


def rows(folder):
    with open(folder / "metrics.csv", newline="") as f:
        return list(csv.DictReader(f))


def test_a_run_leaves_everything_that_describes_it(digits_run):
    kept = {path.name for path in (digits_run / "checkpoints").iterdir()}
    assert kept == {"best.ckpt", "latest.ckpt", "previous.ckpt", "step_19.ckpt", "step_38.ckpt"}
    config = yaml.safe_load((digits_run / "config.yaml").read_text())
    assert config["model"]["num_classes"] == 10  # resolved
    start = json.loads((digits_run / "provenance.json").read_text())[0]
    assert start["versions"]["torch"] == torch.__version__.split("+")[0] or start["versions"]["torch"]
    assert "commit" in start["git"] or start["git"] == {}
    names = {path.name for path in (digits_run / "pictures").iterdir()}
    views = {"attention_rollout.png", "attention_distance.png", "position_similarity.png", "embedding_filters.png"}
    views |= {f"attention_{image}.png" for image in (1, 2, 3, 4)}
    assert names >= views | {"training_batch.png", "test_confusion_matrix.png", "test_worst_predictions.png"}
    logged = {name for row in rows(digits_run) for name, value in row.items() if value}
    assert {"train/loss", "train/acc1", "train/acc5", "train/lr", "train/grad_norm"} <= logged
    assert {"train/images_per_second", "train/peak_memory_mib", "val/loss", "val/acc1", "val/acc5"} <= logged
    assert {"test/loss", "test/acc1", "test/acc5", "test/ece"} <= logged


def test_every_test_sample_is_scored_once(digits_run):
    with open(digits_run / "test_predictions.csv", newline="") as f:
        predictions = list(csv.DictReader(f))
    assert [int(row["index"]) for row in predictions] == list(range(359))
    right = sum(row["true"] == row["predicted"] for row in predictions)
    result = json.loads((digits_run / "result.json").read_text())
    assert abs(result["test"]["test/acc1"] - right / 359) < 1e-6
    assert result["partial"] == []


def test_the_best_model_is_the_one_with_the_best_monitored_metric(digits_run):
    scores = {int(row["step"]): float(row["val/acc1"]) for row in rows(digits_run) if row["val/acc1"]}
    best = file.read(digits_run / "checkpoints" / "best.ckpt")
    assert best["score"]["val/acc1"] == max(scores.values())
    assert scores[best["global_step"]] == max(scores.values())


def test_checkpoints_are_plain_data_that_rebuild_the_run(digits_run):
    checkpoint = torch.load(digits_run / "checkpoints" / "best.ckpt", weights_only=True)
    run = checkpoint["run"]
    assert run["class_names"] == [str(digit) for digit in range(10)]
    assert run["config"]["data"]["mean"] == [0.3053]
    assert json.loads(json.dumps(run)) == run  # plain types all through
    assert all(name.startswith("model.") for name in checkpoint["state_dict"])


@pytest.mark.parametrize("resolution", mostly_slow(["full", "progressive"]))
def test_an_option_that_a_recipe_chose_can_be_left_out(cli, tmp_path, resolution):
    """The values that the recipe states for it go with it."""
    options = [
        "recipe=cifar10_cpu",
        "data=synthetic",
        "data.cache.kind=none",
        "mixing=none",
        f"resolution={resolution}",
    ]
    run = cli("train", *options, "model.depth=1", "trainer.max_steps=2", "trainer.max_epochs=-1", folder="run")
    assert run.status == 0, run.err
    config = OmegaConf.load(run.folder / "config.yaml")
    assert config.mixing == {}
    assert bool(config.resolution) == (resolution == "progressive")


@pytest.mark.slow
def test_names_that_are_not_utf8_are_written_with_their_bytes(cli, tmp_path):
    for split in ("train", "val", "test"):
        for number, name in enumerate((b"caf\xe9", b"tea")):
            folder = os.fsencode(tmp_path / "images" / split) + b"/" + name
            os.makedirs(folder)
            for i in range(4):
                pixels = np.full((8, 8, 3), 20 * i + 100 * number + len(split), dtype=np.uint8)
                Image.fromarray(pixels).save(os.fsdecode(folder + b"/\xfc%d.png" % i))
    options = ["data=folder", "data.source.root=images", "data.num_classes=2", "data.image_size=8"]
    run = cli("train", *options, "global_batch_size=4", "trainer.max_epochs=1", folder="run", pictures=True)
    assert run.status == 0, run.err
    with open(run.folder / "test_predictions.csv", newline="", encoding="utf-8") as f:
        assert {row["true"] for row in csv.DictReader(f)} == {"caf\\xe9", "tea"}
    said = cli("predict", "run=run", "images=images/test")
    assert said.status == 0, said.err
    assert "\\xfc0.png" in next((run.folder / "predict").glob("*/predictions.csv")).read_text(encoding="utf-8")


def after(cli, num_steps, *options):
    """The weights after so many steps: of a new run, or, without options, of the same one gone on with."""
    chosen = options or ("resume=run",)
    run = cli("train", *chosen, f"trainer.max_steps={num_steps}", folder="run" if options else None, tiny=bool(options))
    assert run.status == 0, run.err
    return file.read(Path("run/checkpoints/latest.ckpt"))["state_dict"]


@pytest.mark.slow
def test_gradients_are_clipped_in_bf16(cli):
    """SGD without momentum: the weights move as far as the clipped gradient, times the learning rate."""
    options = [*BARE, "trainer.precision=bf16-mixed", "trainer.gradient_clip_val=1e-3", "optimizer=sgd"]
    options += ["optimizer.algorithm.momentum=0", "optimizer.weight_decay=0", "optimizer.lr=1.0", "schedule=constant"]
    options += ["schedule.warmup_ratio=0", "global_batch_size=256"]
    one, two = after(cli, 1, *options), after(cli, 2)
    moved = [(two[name] - value).square().sum() for name, value in one.items() if name.startswith("model.")]
    assert sum(moved).sqrt() == pytest.approx(1e-3, rel=1e-2)


def test_early_stopping_by_a_metric_of_its_own_knows_which_way_is_better(cli):
    stopping = ["callbacks=[default,early_stopping]", "callbacks.early_stopping.monitor=val/loss"]
    run = cli("train", *BARE, *stopping, "trainer.max_steps=1", folder="run")
    assert run.status == 0, run.err
    callbacks = yaml.safe_load((run.folder / "config.yaml").read_text())["callbacks"]
    assert callbacks["early_stopping"]["mode"] == "min"
    assert callbacks["best_model"]["mode"] == "max"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(cli):
    options = [*FEW, "trainer.max_epochs=1", "mixing=mixup_cutmix"]
    options += ["model.drop_path_rate=0.1"]
    weights = []
    for name, more in (("a", []), ("b", ["data.loading.num_workers=2"]), ("c", ["seed=1"])):
        run = cli("train", *options, *more, folder=name)
        assert run.status == 0, run.err
        weights.append(file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])  # workers change nothing
    assert not torch.equal(weights[0]["model.head.weight"], weights[2]["model.head.weight"])


def test_building_a_cache_changes_nothing(cli, tmp_path):
    options = [*BARE, "data=synthetic", "data.source.num_samples=300", "trainer.max_steps=1", "data.cache.kind=decoded"]
    weights = []
    for name in ("built", "found"):
        run = cli("train", *options, f"data.cache.root={tmp_path / 'cache'}", folder=name)
        assert run.status == 0, run.err
        weights.append(file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_accumulation_takes_the_same_steps(cli):
    """The same global batches in micro-batches: equal up to the order of float32 sums."""
    weights = []
    for name, more in (("whole", []), ("parts", ["data.device_batch_size=32"])):
        run = cli("train", "trainer.max_steps=4", "global_batch_size=128", "optimizer=sgd", *more, folder=name)
        assert run.status == 0, run.err
        weights.append(file.read(run.folder / "checkpoints" / "latest.ckpt")["state_dict"])
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], atol=2e-6, rtol=1e-4)


def test_fast_dev_run_is_marked_partial(cli):
    run = cli("train", "+trainer.fast_dev_run=true", folder="run")
    assert run.status == 0, run.err
    assert json.loads((run.folder / "result.json").read_text())["partial"] == ["fast_dev_run"]
    assert not (run.folder / "checkpoints").exists()


def test_max_steps_ends_with_a_validated_and_tested_model(cli):
    run = cli("train", "trainer.max_steps=3", folder="run")
    assert run.status == 0, run.err
    result = json.loads((run.folder / "result.json").read_text())
    assert result["steps"] == 3
    assert result["best_step"] == 3


def test_sanity_validation_is_partial_and_keeps_no_model(cli):
    run = cli("train", "trainer.num_sanity_val_steps=1", "trainer.max_epochs=1", *FEW, folder="run")
    assert run.status == 0, run.err
    assert file.read(run.folder / "checkpoints" / "best.ckpt")["global_step"] == 4


def test_a_run_without_validation_tests_its_last_weights(cli):
    run = cli("train", "+trainer.limit_val_batches=0", "trainer.max_steps=2", folder="run")
    assert run.status == 0, run.err
    result = json.loads((run.folder / "result.json").read_text())
    assert result["partial"] == ["limit_val_batches"]
    assert "test/acc1" in result["test"]


def test_early_stopping_stops(cli):
    run = cli(
        "train",
        "trainer.max_epochs=30",
        "data.split.labels_per_class=3",
        "global_batch_size=30",
        "optimizer.lr=1e-9",
        "callbacks=[default,early_stopping]",
        "callbacks.early_stopping.patience=2",
        "monitor=val/acc1",
        folder="run",
    )
    assert run.status == 0, run.err
    assert json.loads((run.folder / "result.json").read_text())["steps"] < 10


def test_a_gray_data_set_can_be_asked_to_have_three_channels(cli):
    run = cli(
        "train",
        "data.images.mode=RGB",
        "data.in_chans=3",
        "data.mean=[0.3,0.3,0.3]",
        "data.std=[0.4,0.4,0.4]",
        "trainer.max_steps=1",
        folder="run",
    )
    assert run.status == 0, run.err
    weights = file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"]
    assert weights["model.patch_embed.proj.weight"].shape == (32, 3, 4, 4)


@pytest.mark.slow
def test_the_log_says_how_long_the_run_has_taken_earlier_starts_included(cli):
    options = [*FEW, "trainer.max_epochs=1", "trainer.log_every_n_steps=1"]
    run = cli("train", *options, folder="run")
    first = [float(row["train/seconds"]) for row in rows(run.folder) if row["train/seconds"]]
    assert first == sorted(first)
    assert first[0] > 0
    assert cli("train", "resume=run", "trainer.max_epochs=2").status == 0
    both = [float(row["train/seconds"]) for row in rows(run.folder) if row["train/seconds"]]
    assert both[: len(first)] == first
    assert len(both) > len(first)
    assert both == sorted(both)
