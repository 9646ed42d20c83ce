"""The parts of a run: each is built from its node, and is given what only the run has."""

from types import SimpleNamespace

import pytest
import torch
from conftest import vit_options
from omegaconf import OmegaConf

from vitlab.callbacks import BestModel
from vitlab.config.in_process import compose
from vitlab.errors import ConfigError
from vitlab.models import VisionTransformer
from vitlab.run.building import parts
from vitlab.run.building.parts import build_callbacks, build_datamodule, build_task
from vitlab.tasks import Classification


@pytest.fixture
def given(monkeypatch):
    """given[key]: the runtime objects that the node at the key is built with."""
    found = {}

    def fake(node, key, **runtime):
        found[key] = runtime
        return key

    monkeypatch.setattr(parts, "build", fake)
    return found


def test_callbacks_are_built_in_their_order_and_a_wrong_one_is_named():
    cfg = compose("train", ["model=vit_mu4", "data=digits"])
    best = cfg.callbacks.best_model
    assert [type(one) for one in build_callbacks(SimpleNamespace(callbacks={"a": best}))] == [BestModel]
    assert len(build_callbacks(cfg)) == len(cfg.callbacks)
    wrong = {"a": best, "b": OmegaConf.merge(best, {"mode": "most"})}
    with pytest.raises(ConfigError, match=r"callbacks\.b"):
        build_callbacks(SimpleNamespace(callbacks=wrong))


def test_data_are_given_their_source_and_what_is_done_to_training_images(given):
    cfg = OmegaConf.create({"data": {}, "augmentation": {"a": 1}, "mixing": None})
    assert build_datamodule(cfg, "opened") == "data"
    assert given["data"] == {"source": "opened", "augmentation": "augmentation"}


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ({}, set()),
        ({"decoding": None}, {"vocabulary"}),
        ({"templates": []}, {"vocabulary"}),
        ({"loss": None}, set()),
    ],
)
@pytest.mark.parametrize("teacher", [False, True])
def test_a_task_is_given_what_its_kind_has(given, task, more, teacher):
    cfg = OmegaConf.create({"task": task, "optimizer": {}, "schedule": {}} | ({"teacher": {}} if teacher else {}))
    build_task(cfg, "model", teacher="a teacher", vocabulary="a vocabulary")
    known = {"model", "optimization", "schedule"} | ({"teacher"} if teacher else set()) | more
    assert given["task"].keys() == known
    given["task"]["schedule"](70)
    assert given["schedule"] == {"num_steps": 70}


def test_the_task_of_a_config_trains_the_model_by_its_schedule():
    words = ["model=vit_mu4", "data=digits", "schedule=constant", "schedule.warmup_ratio=0.1"]
    model = VisionTransformer(**vit_options())
    task = build_task(compose("train", words), model)
    assert isinstance(task, Classification)
    assert task.model is model
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, task.schedule(20))
    assert rates.get_last_lr()[0] < 1.0
    for _ in range(3):
        optimizer.step()
        rates.step()
    assert rates.get_last_lr() == [1.0]
