"""A run whose model is sharded, over a mesh of one, is the run of a whole one: figures, averages, checkpoints."""

import pytest
import torch
from conftest import BARE, FEW
from one_process import one_process
from test_ddp import rows
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from vitlab.distributed.sharding import fill
from vitlab.tasks import Task

OPTIONS = [*BARE, *FEW, "callbacks=[default,ema]", "callbacks.ema.decay=0.8", "trainer.max_steps=6"]
OPTIONS += ["trainer.log_every_n_steps=1", "trainer.gradient_clip_val=0.5", "model.drop_rate=0.1"]
OF_THE_CLOCK = ("train/images_per_second", "train/seconds", "train/peak_memory_mib")


def shard(task):
    """What a strategy calls before the run's first step, and again before each evaluation."""
    if not any(isinstance(value, DTensor) for value in task.state_dict().values()):
        mesh = init_device_mesh("cpu", (1,))
        for block in task.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(task.model, mesh=mesh)


def load(task, state, strict=True):
    for name, value in task.state_dict().items():
        fill(value, state[name])


@pytest.mark.ci
@pytest.mark.slow
def test_a_run_whose_model_is_sharded_is_that_of_a_whole_one(cli, monkeypatch):
    one = cli("train", *OPTIONS, folder="one")
    assert one.status == 0, one.err
    monkeypatch.setattr(Task, "configure_model", shard)
    monkeypatch.setattr(Task, "load_state_dict", load)
    monkeypatch.setattr("conftest.leave_the_others", lambda: None)
    with one_process():
        sharded = cli("train", *OPTIONS, folder="sharded")
    assert sharded.status == 0, sharded.err
    for a, b in zip(rows(one.folder), rows(sharded.folder), strict=True):
        assert {k: v for k, v in a.items() if k not in OF_THE_CLOCK} == {k: b[k] for k in a if k not in OF_THE_CLOCK}
    for name, keys in {"best": ["state_dict"], "latest": ["state_dict", "current_model_state"]}.items():
        states = [torch.load(run.folder / "checkpoints" / f"{name}.ckpt", weights_only=False) for run in (one, sharded)]
        if name == "latest":  # which is the strategy's to gather
            assert isinstance(states[1]["optimizer_states"][0]["state"][0]["exp_avg"], DTensor)
        for key in keys:
            assert states[0][key].keys() == states[1][key].keys()
            for value, own in zip(states[0][key].values(), states[1][key].values(), strict=True):
                assert type(own) is torch.Tensor
                assert torch.equal(value, own)
