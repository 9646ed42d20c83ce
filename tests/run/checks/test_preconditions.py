"""What must hold before a run starts: parts of its config that suit each other, and a trainer that has work."""

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from one_process import SHARDING
from torch import nn

from vitlab.data.targets import OneClass, Texts
from vitlab.distributed.fully_sharded import FullySharded
from vitlab.errors import ConfigError
from vitlab.run.checks.preconditions import (
    check_agreement,
    check_batches,
    check_copies,
    check_images,
    check_inputs,
    check_launched,
    check_sharded,
    check_targets,
    estimate_checkpoint_bytes,
)

SEEN = {"image_size": 32, "in_chans": 3, "num_classes": 10, "patch_size": 4}


def config(model=None, data=None, task=None):
    return OmegaConf.create({"model": model or {}, "data": data or {}, "task": task or {}})


# -- the config


def test_a_model_takes_what_the_data_gives():
    check_agreement(config(SEEN, SEEN))
    check_agreement(config({**SEEN, "image_size": None, "encoder": None}, SEEN))
    check_agreement(config({**SEEN, "encoder": {**SEEN, "num_classes": 0}}, SEEN))  # the head is taken off


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"image_size": 64}, "model.image_size is 64, but data.image_size is 32; set only data.image_size"),
        ({"num_classes": 7}, "model.num_classes is 7, but data.num_classes is 10"),
        ({"encoder": {"in_chans": 1}}, "model.encoder.in_chans is 1, but data.in_chans is 3"),
        ({"patch_size": 8}, "data.patch_size is 4, but model.patch_size is 8"),
        ({"patch_size": None}, "data.patch_size is 4, but model.patch_size is None"),
    ],
)
def test_a_model_of_other_images_is_refused(model, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_agreement(config(SEEN | model, SEEN))


READER, WRITES = {"encoder": {"vocab_size": 5}}, {"decoding": {}}


@pytest.mark.parametrize(
    ("model", "data", "task", "sentence"),
    [
        ({}, {"images": {}}, {}, None),
        (READER, {}, WRITES, None),
        (READER, {"images": {}}, WRITES, "the model reads texts, but the data has images"),
        ({}, {}, WRITES, "the data has only texts, but the model reads images"),
        (READER, {}, {}, "the data has only texts, but the task needs images; set task=sequence"),
    ],
)
def test_images_and_texts_are_not_taken_for_each_other(model, data, task, sentence):
    if sentence is None:
        check_inputs(config(model, data, task))
    else:
        with pytest.raises(ConfigError, match=sentence):
            check_inputs(config(model, data, task))


def test_a_command_of_images_takes_no_texts():
    check_images(OmegaConf.create({"images": None}))
    with pytest.raises(ConfigError, match="the data has only texts"):
        check_images(OmegaConf.create({"source": None}))


CAPTIONS = SimpleNamespace(things="images", targets=Texts(["a"]), vocabulary="characters")
CLASSES = SimpleNamespace(things="images", targets=OneClass([0]), vocabulary=None)


@pytest.mark.parametrize(
    ("model", "task", "data", "sentence"),
    [
        ({}, {"num_classes": 2}, CLASSES, None),
        ({"decoder": {"vocab_size": 5}}, WRITES, CAPTIONS, None),
        ({"text": {"vocab_size": 5}}, {"templates": []}, CAPTIONS, None),
        ({}, {"num_classes": 2}, CAPTIONS, r"learns from classes, but this data has images .*; set task=captioning"),
        ({"decoder": {}}, WRITES, CLASSES, r"writes texts, but this data has images .*; set task=classification"),
        ({"text": {}}, {"templates": []}, CLASSES, "compares images with texts, but this data has images with one"),
        ({}, {"templates": []}, CAPTIONS, "but the model reads no texts; choose model=clip_xs8"),
        ({}, WRITES, CAPTIONS, "the task writes texts, but the model does not"),
        ({"decoder": {"vocab_size": 5}}, {}, CLASSES, "the model takes texts, but this data has images with one class"),
        ({"question_length": 3}, {"_target_": "a.Answering"}, CAPTIONS, "the task answers questions, but this data"),
        ({"question_length": 3}, {"_target_": "a.Other"}, CAPTIONS, "the model needs questions, but this data has"),
    ],
)
def test_data_a_task_and_a_model_have_the_same_targets(model, task, data, sentence):
    cfg = config(model, {"images": {}}, task)
    if sentence is None:
        check_targets(cfg, data)
    else:
        with pytest.raises(ConfigError, match=sentence):
            check_targets(cfg, data)


# -- the trainer


def trainer_of(**changes):
    limits = {f"limit_{split}_batches": 1.0 for split in ("train", "val", "test")}
    own = {"accumulate_grad_batches": 1, "val_check_interval": 1.0, "check_val_every_n_epoch": 1}
    return SimpleNamespace(**limits | own | changes)


DATA = SimpleNamespace(steps_per_epoch=10, evaluation_loader=lambda split: range({"val": 5, "test": 3}[split]))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, None),
        ({"limit_val_batches": 0.2}, None),
        ({"limit_val_batches": 0.0, "limit_test_batches": 0}, None),  # on purpose
        ({"limit_val_batches": 0.19}, "trainer.limit_val_batches 0.19 of 5 batches leaves none"),
        ({"limit_test_batches": 0.3}, "trainer.limit_test_batches 0.3 of 3 batches leaves none"),
        ({"limit_train_batches": 0.05}, "trainer.limit_train_batches 0.05 of 10 batches leaves none"),
        ({"limit_train_batches": 0.05, "accumulate_grad_batches": 2}, None),  # of 20
        ({"val_check_interval": 10}, None),
        ({"val_check_interval": 11}, "trainer.val_check_interval 11 is more than the 10 batches of an epoch"),
        ({"val_check_interval": 20, "accumulate_grad_batches": 2}, None),
        ({"val_check_interval": 6, "limit_train_batches": 5}, "6 is more than the 5 batches"),
        ({"val_check_interval": 6, "limit_train_batches": 0.5}, "6 is more than the 5 batches"),
        ({"val_check_interval": 11, "check_val_every_n_epoch": None}, None),
    ],
)
def test_every_split_has_a_batch_and_every_epoch_a_validation(changes, sentence):
    if sentence is None:
        check_batches(trainer_of(**changes), DATA)
    else:
        with pytest.raises(ConfigError, match=sentence):
            check_batches(trainer_of(**changes), DATA)


def test_copies_of_a_model_have_the_same_number_of_devices():
    sharded = FullySharded(copies=2, timeout_minutes=1, **SHARDING)
    check_copies(SimpleNamespace(strategy=sharded, world_size=4))
    check_copies(SimpleNamespace(strategy=SimpleNamespace(), world_size=3))
    with pytest.raises(ConfigError, match=r"trainer\.strategy\.copies 2 does not divide the 3 devices"):
        check_copies(SimpleNamespace(strategy=sharded, world_size=3))


def test_several_machines_need_a_launcher(monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    check_launched(OmegaConf.create({}))
    check_launched(OmegaConf.create({"num_nodes": 1}))
    two = OmegaConf.create({"num_nodes": 2})
    with pytest.raises(ConfigError, match="torchrun --nnodes=2"):
        check_launched(two)
    monkeypatch.setenv("NODE_RANK", "0")
    check_launched(two)


# -- the task


def task_of(model, *learned):
    task = nn.Module()
    task.model = model
    task.groups = [{"params": [parameter]} for parameter in learned or model.parameters()]
    return task


def test_what_is_sharded_is_one_model_without_batch_norm():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    check_sharded(task_of(model), config())
    check_sharded(task_of(model, model[0].weight), config())
    with pytest.raises(ConfigError, match="Module, which trains parts outside its model; use trainer=ddp"):
        check_sharded(task_of(model, model[0].weight, nn.Linear(2, 2).weight), config())
    with pytest.raises(ConfigError, match="contains BatchNorm"):
        check_sharded(task_of(nn.Sequential(nn.BatchNorm2d(3))), config())


def test_the_disk_holds_three_states_and_two_models():
    """A state: weights and their average, and of what learns two moments."""
    model = nn.Linear(7, 3, bias=False)
    weights = 7 * 3 * 4
    assert estimate_checkpoint_bytes(task_of(model)) == 3 * 4 * weights + 2 * weights
    frozen = task_of(model)
    frozen.groups = []
    assert estimate_checkpoint_bytes(frozen) == 3 * 2 * weights + 2 * weights
