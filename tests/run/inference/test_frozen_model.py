"""A model that is only looked at: whose data it is shown, and which keys are its run's own."""

import pytest
from omegaconf import OmegaConf

from vitlab.config.in_process import compose
from vitlab.config.job import Job
from vitlab.config.nodes import resolve_config
from vitlab.errors import ConfigError
from vitlab.run.inference import frozen_model
from vitlab.run.inference.frozen_model import SEEN, FrozenModel, build_data_node, check_overrides, prepare_evaluation

OWN = {
    "image_size": 32,
    "in_chans": 1,
    "mean": [0.3],
    "std": [0.2],
    "patch_size": 4,
    "images": {"mode": None, "eval_crop": "the run's"},
    "source": "digits",
    "cache": {"kind": "none"},
}
OTHER = OWN | {"image_size": 224, "in_chans": 3, "mean": [0.5] * 3, "source": "photos", "num_classes": 7}
OTHER |= {"images": {"mode": "RGB", "eval_crop": "another"}, "cache": {"kind": "device"}}


@pytest.fixture
def job(monkeypatch):
    """job(overrides, choices): the command that was typed."""

    def typed(*overrides, **choices):
        own = Job("features", None, False, list(overrides), choices)
        monkeypatch.setattr(Job, "current", classmethod(lambda cls: own))

    return typed


@pytest.mark.parametrize(
    "override",
    ["model=vit_b16", "+model.depth=3", "crop=whole", "data.image_size=64", "++data.images.mode=L", "~model.pool"],
)
def test_what_the_run_brings_cannot_be_chosen_beside_it(job, override):
    job(override)
    with pytest.raises(ConfigError, match=f"{override.lstrip('+~').split('=')[0]} cannot be set with run="):
        check_overrides()


def test_other_data_can_be_chosen_beside_a_run(job):
    job("data=folder", "data.source.root=model", "+data.num_classes=3", "~data.cache", "precision=bf16-mixed")
    check_overrides()


def test_the_data_of_a_run_take_the_keys_that_are_given():
    cfg = OmegaConf.create({"data": {"split": {"labels_per_class": 3}, "source": "digits too"}})
    assert build_data_node(OWN, cfg, chosen=False) == OWN | {"split": {"labels_per_class": 3}, "source": "digits too"}
    assert build_data_node(OWN, OmegaConf.create({}), chosen=False) == OWN


def test_other_data_are_seen_as_the_run_sees_its_own():
    found = build_data_node(OWN, OmegaConf.create({"data": OTHER}), chosen=True)
    assert {key: found[key] for key in SEEN} == {key: OWN[key] for key in SEEN}
    assert found["images"] == {"mode": "L", "eval_crop": "the run's"}  # a single channel is gray
    assert (found["source"], found["num_classes"], found["cache"]) == ("photos", 7, {"kind": "none"})
    in_colour = OWN | {"images": {"mode": "RGB", "eval_crop": "the run's"}}
    assert build_data_node(in_colour, OmegaConf.create({"data": OTHER}), chosen=True)["images"]["mode"] == "RGB"


def test_data_that_are_only_evaluated_are_left_as_they_are():
    words = ["model=vit_mu4", "data=digits", "data.split.labels_per_class=5", "data.cache.kind=device"]
    cfg = compose("train", [*words, "data.order.class_balance=1", "data.device_batch_size=8"])
    changed = prepare_evaluation(cfg, few_labels=False)
    images, data = resolve_config(changed.data.images), changed.data
    assert images["train_transform"] is None
    assert images["train_crop"] == images["eval_crop"] == resolve_config(cfg.data.images)["eval_crop"]
    assert (data.global_batch_size, data.device_batch_size) == (1, None)
    assert (data.order.class_balance, data.cache.kind) == (0, "none")
    assert data.split.labels_per_class is None
    assert prepare_evaluation(cfg, few_labels=True).data.split.labels_per_class == 5
    assert cfg.data.cache.kind == "device"  # the config itself stays


@pytest.mark.parametrize("missing", ["model", "data"])
def test_without_a_run_there_is_a_model_and_data(job, monkeypatch, missing):
    job()
    monkeypatch.setattr(frozen_model, "build_model", lambda node: pytest.fail("it is built"))
    cfg = {"run": None, "precision": "32-true", "model": {}, "data": {}} | {missing: None}
    with pytest.raises(ConfigError, match="give run=<run folder or checkpoint>, or model= and data="):
        FrozenModel.open(OmegaConf.create(cfg))


def test_an_unknown_precision_is_refused_before_anything_is_opened(job):
    job()
    with pytest.raises(ConfigError, match="precision 'fp8'"):
        FrozenModel.open(OmegaConf.create({"run": "nowhere", "precision": "fp8"}))
