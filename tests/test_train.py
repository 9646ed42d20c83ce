"""The main job, end to end."""

import csv
import json

import pytest
import torch
import yaml
from conftest import BARE

from vitlab.checkpoints import file


def rows(folder):
    with open(folder / "metrics.csv", newline="") as f:
        return list(csv.DictReader(f))


def test_a_run_leaves_everything_that_describes_it(digits_run):
    assert {path.name for path in (digits_run / "checkpoints").iterdir()} == {"best.ckpt", "latest.ckpt"}
    config = yaml.safe_load((digits_run / "config.yaml").read_text())
    assert config["model"]["num_classes"] == 10  # resolved
    start = json.loads((digits_run / "provenance.json").read_text())[0]
    assert start["versions"]["torch"] == torch.__version__.split("+")[0] or start["versions"]["torch"]
    assert "commit" in start["git"] or start["git"] == {}
    names = {path.name for path in (digits_run / "pictures").iterdir()}
    views = {"attention_rollout.png", "attention_distance.png", "position_similarity.png", "embedding_filters.png"}
    views |= {f"attention_{image}.png" for image in (1, 2, 3, 4)}
    assert names == views | {"training_batch.png", "test_confusion_matrix.png", "test_worst_predictions.png"}
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


def test_evaluation_gives_the_numbers_of_the_runs_own_test(cli, digits_run):
    result = json.loads((digits_run / "result.json").read_text())["test"]
    assert cli("evaluate", f"run={digits_run}").status == 0
    evaluation = json.loads((digits_run / "evaluation_test.json").read_text())
    assert {name: evaluation[name] for name in result} == result


def test_evaluation_scores_any_split(cli, digits_run):
    best = file.read(digits_run / "checkpoints" / "best.ckpt")
    assert cli("evaluate", f"run={digits_run / 'checkpoints' / 'best.ckpt'}", "split=val").status == 0
    evaluation = json.loads((digits_run / "evaluation_val.json").read_text())
    assert abs(evaluation["val/acc1"] - best["score"]["val/acc1"]) < 1e-6
    assert cli("evaluate", f"run={digits_run}", "split=train").status == 0
    with open(digits_run / "train_predictions.csv", newline="") as f:
        assert len(list(csv.DictReader(f))) == 1258
    assert cli("evaluate", f"run={digits_run}", "split=tset").status == 2


def test_a_run_learns(cli):
    """Waves of four directions: a tiny ViT tells them apart after 120 steps."""
    run = cli(
        "train",
        "data=synthetic",
        "data.num_classes=4",
        "data.source.num_samples=1000",
        "trainer.max_epochs=12",
        "optimizer.lr=3e-3",
        "callbacks=[default,ema]",
        "callbacks.ema.decay=0.9",
        folder="run",
    )
    assert run.status == 0
    result = json.loads((run.folder / "result.json").read_text())
    assert result["test"]["test/acc1"] > 0.9


def test_the_same_seed_gives_the_same_run(cli):
    options = [*BARE, "trainer.max_epochs=1", "global_batch_size=256", "mixing=mixup_cutmix"]
    options += ["model.drop_path_rate=0.1"]
    weights = []
    for name, more in (("a", []), ("b", ["data.num_workers=2"]), ("c", ["seed=1"])):
        run = cli("train", *options, *more, folder=name)
        assert run.status == 0, run.err
        weights.append(file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])  # workers change nothing
    assert not torch.equal(weights[0]["model.head.weight"], weights[2]["model.head.weight"])


def test_building_a_cache_changes_nothing(cli, tmp_path):
    options = [*BARE, "data=synthetic", "data.source.num_samples=300", "trainer.max_steps=1", "data.cache=decoded"]
    weights = []
    for name in ("built", "found"):
        run = cli("train", *options, f"data.cache_root={tmp_path / 'cache'}", folder=name)
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
    run = cli("train", "trainer.num_sanity_val_steps=1", "trainer.max_epochs=1", "global_batch_size=256", folder="run")
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
        "global_batch_size=1024",
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
        "data.image_mode=RGB",
        "data.in_chans=3",
        "data.mean=[0.3,0.3,0.3]",
        "data.std=[0.4,0.4,0.4]",
        "trainer.max_steps=1",
        folder="run",
    )
    assert run.status == 0, run.err
    weights = file.read(run.folder / "checkpoints" / "best.ckpt")["state_dict"]
    assert weights["model.patch_embed.proj.weight"].shape == (32, 3, 4, 4)


def test_the_log_says_how_long_the_run_has_taken_earlier_starts_included(cli):
    options = [*BARE, "trainer.max_epochs=1", "global_batch_size=256", "trainer.log_every_n_steps=1"]
    run = cli("train", *options, folder="run")
    first = [float(row["train/seconds"]) for row in rows(run.folder) if row["train/seconds"]]
    assert first == sorted(first)
    assert first[0] > 0
    assert cli("train", "resume=run", "trainer.max_epochs=2").status == 0
    both = [float(row["train/seconds"]) for row in rows(run.folder) if row["train/seconds"]]
    assert both[: len(first)] == first
    assert len(both) > len(first)
    assert both == sorted(both)
