"""What a device holds in training, alone and as one of several that share the model."""

from types import SimpleNamespace

import pytest
import torch
from conftest import vit_options
from one_process import SHARDING
from torch import nn

from vitlab.callbacks import EMA
from vitlab.counting import TrainingMemory, training_memory
from vitlab.data import ImageDataModule
from vitlab.distributed.fully_sharded import FullySharded
from vitlab.models import VisionTransformer
from vitlab.run.checks.memory_estimate import (
    count_sharing_devices,
    divide_memory,
    estimate_device_memory,
    estimate_training_memory,
)

WHOLE = TrainingMemory(fixed=1000, per_image=10, casts=100)


def trainer_of(*callbacks, precision="32-true", strategy=None, world_size=1):
    return SimpleNamespace(callbacks=list(callbacks), precision=precision, strategy=strategy, world_size=world_size)


def task_of(model):
    return SimpleNamespace(model=model, optimization=SimpleNamespace(algorithm=torch.optim.AdamW))


def images():
    """As much of a datamodule as is read."""
    data = object.__new__(ImageDataModule)
    data.in_chans, data.image_size = 1, 32
    return data


@pytest.fixture
def model():
    return VisionTransformer(**vit_options())


def bytes_of(module):
    return sum(parameter.nbytes for parameter in module.parameters())


@pytest.mark.parametrize(("precision", "bf16"), [("32-true", False), ("bf16-mixed", True), ("16-mixed", True)])
def test_a_model_is_counted_in_the_precision_of_the_trainer(model, precision, bf16):
    counted = training_memory(model, (1, 32, 32), bf16, torch.optim.AdamW)
    assert estimate_device_memory(task_of(model), images(), trainer_of(precision=precision)) == counted
    assert estimate_training_memory(task_of(model), images(), trainer_of(precision=precision)) == counted


def test_an_average_is_the_weights_once_more(model):
    plain = estimate_device_memory(task_of(model), images(), trainer_of(SimpleNamespace()))
    averaged = estimate_device_memory(task_of(model), images(), trainer_of(EMA(decay=0.5, start_step=0)))
    assert averaged == plain._replace(fixed=plain.fixed + bytes_of(model))


def test_what_cannot_be_counted_is_not_known(model):
    class Odd(nn.Module):
        def forward(self, images):
            return images if images.sum() > 0 else -images

    texts = SimpleNamespace(in_chans=1, image_size=32)
    assert estimate_device_memory(task_of(model), texts, trainer_of()) is None
    assert estimate_training_memory(task_of(Odd()), images(), trainer_of()) is None


def test_a_device_alone_holds_everything(model):
    parameters = sum(p.numel() for p in model.parameters())
    assert divide_memory(model, WHOLE, 1) == (parameters, WHOLE, WHOLE.fixed)


def test_devices_that_share_gather_the_trunk_and_two_blocks(model):
    model = VisionTransformer(**vit_options(depth=5))
    block, weights = bytes_of(model.blocks[0]), bytes_of(model)
    parameters, memory, evaluation = divide_memory(model, WHOLE, 4)
    own = (1000 - 100) // 4 + 100
    assert parameters == -(-sum(p.numel() for p in model.parameters()) // 4)
    assert memory == WHOLE._replace(fixed=own + 2 * (weights - 5 * block + 2 * block))
    assert evaluation == own + weights


@pytest.mark.parametrize("model", [nn.Linear(3, 5), VisionTransformer(**vit_options(depth=1))])
def test_no_more_than_all_weights_are_gathered(model):
    share = divide_memory(model, WHOLE, 2)
    assert share.memory.fixed == 450 + 100 + 2 * bytes_of(model)
    assert 2 * share.parameters == sum(p.numel() for p in model.parameters())  # both are even


@pytest.mark.parametrize(("copies", "devices"), [(1, 8), (2, 4), (8, 1)])
def test_devices_with_a_copy_of_their_own_share_nothing(copies, devices):
    strategy = FullySharded(copies=copies, timeout_minutes=1, **SHARDING)
    assert count_sharing_devices(trainer_of(strategy=strategy, world_size=8)) == devices
    assert count_sharing_devices(trainer_of(strategy=SimpleNamespace(), world_size=8)) == 1
