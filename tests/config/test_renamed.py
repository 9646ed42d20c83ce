"""Keys that had another name: runs of before open, and whoever types an old one is told the new one."""

import pytest
import yaml

from vitlab.config.renamed import NEW, in_rooms, new_name
from vitlab.config.stored_config import from_saved
from vitlab.errors import ConfigError

FLAT = {
    "_target_": "vitlab.data.ImageDataModule",
    "image_size": 32,
    "image_mode": None,
    "train_crop": "${crop.train}",
    "eval_crop": "${crop.eval}",
    "train_transform": None,
    "val_fraction": 0.1,
    "test_fraction": 0.2,
    "labels_per_class": None,
    "class_balance": 0.0,
    "repeats": 1,
    "shuffle_window": None,
    "num_workers": 3,
    "prefetch_batches": None,
    "stall_timeout": 300,
    "on_bad_image": "error",
    "cache": "device",
    "cache_root": "there",
    "cache_size": 32,
}


def test_the_data_of_a_saved_run_moves_into_its_rooms_once():
    moved = in_rooms(FLAT)
    assert set(moved) == {"_target_", "image_size", "images", "split", "order", "loading", "cache"}
    assert moved["cache"] == {"_target_": "vitlab.data.Cache", "kind": "device", "root": "there", "size": 32}
    assert moved["images"]["train_crop"] == "${crop.train}"
    assert moved["loading"]["num_workers"] == 3
    assert in_rooms(moved) == moved


@pytest.mark.parametrize(("old", "new"), NEW.items())
def test_an_old_key_is_refused_with_the_new_one(cli, old, new):
    for command in ("train", "evaluate"):
        run = cli(command, f"{old}=1")
        assert run.status == 2
        assert run.err.strip() == f"ConfigError: {old} is {new} now"


@pytest.mark.parametrize(
    "key", ["data.cache.kind", "data.split.val_fraction", "data.image_size", "data.source.repeats"]
)
def test_a_new_key_is_no_old_one(key):
    assert new_name(key) is None


def test_what_lies_below_an_old_key_moves_with_it():
    assert new_name("data.train_transform.degrees") == "data.images.train_transform.degrees"


def test_an_old_key_in_a_recipe_is_told_its_new_name(cli, tmp_path):
    own = tmp_path / "own" / "recipe"
    own.mkdir(parents=True)
    for name, data in {"flat": {"num_workers": 0}, "node": {"cache": "device"}}.items():
        (own / f"{name}.yaml").write_text("# @package _global_\n" + yaml.safe_dump({"data": data}))
    run = cli("train", "--config-dir", "own", "recipe=flat")
    assert (run.status, run.err.strip()) == (2, "ConfigError: data.num_workers is data.loading.num_workers now")
    run = cli("train", "--config-dir", "own", "recipe=node")
    assert run.status == 2
    assert run.err.strip() == "ConfigError: data.cache is data.cache.kind now"


def test_the_refusal_is_a_config_error():
    from vitlab.config.renamed import refuse_old

    with pytest.raises(ConfigError, match=r"^data\.repeats is data\.order\.repeats now$"):
        refuse_old("data.repeats")


def test_a_job_that_was_to_ask_the_hardware_for_its_precision_measures_it():
    trainer = {"accelerator": "cpu", "precision": "${hardware_precision:${trainer.accelerator}}"}
    assert from_saved({"trainer": trainer}, "a job of before").trainer.precision == "auto"
