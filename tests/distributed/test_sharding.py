"""What every rank holds a part of, as one: norms, checks, averages, states."""

import json
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from one_process import SHARDING, one_process
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from vitlab.callbacks.latest_state import check_finite
from vitlab.distributed.fully_sharded import FullySharded, reshard_weights, unshard_weights
from vitlab.distributed.sharding import fill, unshard_state, unshard_tensor
from vitlab.errors import NonFiniteError


@pytest.fixture
def mesh():
    with one_process() as mesh:
        yield mesh


def test_a_sharded_tensor_becomes_a_plain_one_and_a_plain_one_stays(mesh):
    value = torch.randn(5, 3)
    sharded = distribute_tensor(value, mesh, [Shard(0)])
    assert type(unshard_tensor(sharded)) is torch.Tensor
    assert torch.equal(unshard_tensor(sharded), value)
    assert unshard_tensor(value) is value
    state = unshard_state({"a": sharded, "b": value, "extra": "words"})
    assert torch.equal(state["a"], value)
    assert state["b"] is value
    assert state["extra"] == "words"


def test_a_tensor_is_filled_in_place_whether_it_is_sharded_or_not(mesh):
    value = torch.randn(5, 3)
    sharded = distribute_tensor(value, mesh, [Shard(0)])
    for given in (value, sharded):
        own = distribute_tensor(torch.zeros(5, 3), mesh, [Shard(0)])
        fill(own, given)
        assert isinstance(own, DTensor)
        assert torch.equal(unshard_tensor(own), value)
    plain = torch.zeros(5, 3)
    fill(plain, value)
    assert torch.equal(plain, value)


def test_weights_that_are_not_finite_are_found_in_a_sharded_model(mesh):
    model = nn.Linear(4, 3)
    fully_shard(model, mesh=mesh)
    check_finite(model, 1)
    fill(model.weight.detach(), torch.full((3, 4), float("nan")))
    with pytest.raises(NonFiniteError, match="step 2"):
        check_finite(model, 2)


class Tied(nn.Module):
    """A block between two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3)])
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.register_buffer("kept", torch.ones(3), persistent=False)

    def forward(self, values):
        return self.last(self.blocks[0](self.first(values)) + self.kept)


def test_a_sharded_model_is_copied_as_a_whole_one_that_can_be_differentiated_alone(mesh):
    strategy = FullySharded(copies=1, timeout_minutes=1, **SHARDING)
    strategy.mesh, strategy.parallel_devices = mesh, [torch.device("cpu")]
    model, values = Tied(), torch.randn(2, 3)
    expected = model(values).detach()
    strategy.shard(model)
    unshard_weights(model)  # as in an evaluation
    with torch.inference_mode():
        copied = strategy.copy_unsharded(model)
    assert type(copied) is Tied
    assert copied.last.weight is copied.first.weight
    assert all(type(value) is nn.Parameter for value in copied.parameters())
    assert all(isinstance(value, DTensor) for value in model.parameters())
    torch.testing.assert_close(copied(values), expected)
    copied(values).sum().backward()
    with torch.no_grad():
        copied.last.weight.zero_()
    torch.testing.assert_close(model(values).detach(), expected)


@pytest.fixture
def half():
    """A mesh of two processes, of which the other one is not there: what is sent is counted, not received."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        yield init_device_mesh("cpu", (2,))
    finally:
        dist.destroy_process_group()


def sharded(mesh, **options):
    strategy = FullySharded(copies=1, timeout_minutes=1, **SHARDING | options)
    strategy.mesh, strategy.parallel_devices, strategy._lightning_module = mesh, [torch.device("cpu")], Tied()
    strategy.shard(strategy.lightning_module)
    return strategy, strategy.lightning_module


def count_sent(model, kind):
    """Of a forward and a backward pass."""
    with CommDebugMode() as seen:
        model(torch.randn(2, 3)).sum().backward()
    return sum(count for name, count in seen.get_comm_counts().items() if kind in str(name))


@pytest.mark.parametrize("reduce_once", [True, False])
def test_micro_batches_that_only_accumulate_send_no_gradients(half, reduce_once):
    strategy, model = sharded(half, reduce_once=reduce_once)
    sent = []
    for accumulates in (True, True, False):
        with strategy.block_backward_sync() if accumulates else nullcontext():
            sent.append(count_sent(model, "reduce_scatter"))
    assert sent == ([0, 0, 2] if reduce_once else [2, 2, 2])


@pytest.mark.parametrize("again", [True, False])
def test_a_block_is_gathered_again_for_the_backward_pass_if_asked_also_after_an_evaluation(half, again):
    _, model = sharded(half, reshard_after_forward=again)
    for _ in range(2):
        assert count_sent(model, "gather") == (3 if again else 2)
        unshard_weights(model)
        reshard_weights(model)


def test_weights_are_gathered_in_bfloat16_and_kept_in_float32(half):
    _, model = sharded(half, gather_bf16=True)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(torch.randn(2, 3))
    assert outputs.dtype == torch.bfloat16
    outputs.sum().backward()
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert {value.grad.dtype for value in model.parameters()} == {torch.float32}


def test_groups_that_share_a_copy_wait_no_longer_than_the_strategy(mesh):
    strategy = FullySharded(copies=2, timeout_minutes=3, **SHARDING)
    group = strategy.make_group(torch.tensor([[0]]))
    assert group._get_backend(torch.device("cpu")).options._timeout.total_seconds() == 180


TWO = """
import json, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from types import SimpleNamespace
from vitlab.callbacks import EMA
from vitlab.callbacks.latest_state import check_finite
from vitlab.distributed.sharding import get_own_parameters, unshard_tensor
from vitlab.errors import NonFiniteError

rank = int(sys.argv[2])
if rank >= 0:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 1))  # neither 7 nor 1 is shared evenly
model.num_steps = 3
if rank >= 0:
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer, ema = torch.optim.SGD(model.parameters(), lr=0.1), EMA(decay=0.7, start_step=0)
trainer = SimpleNamespace(global_step=0)
ema.setup(trainer, model, "fit")
ema.on_train_start(trainer, model)
norms = []
for trainer.global_step in (1, 2, 3):
    model(torch.ones(4, 5)).square().mean().backward()
    norms.append(float(unshard_tensor(nn.utils.clip_grad_norm_(model.parameters(), 1.0))))
    optimizer.step()
    optimizer.zero_grad()
    ema.on_train_batch_end(trainer, model, None, None, 0)
ema.on_validation_epoch_start(trainer, model)
with torch.no_grad():
    seen = float(model(torch.ones(1, 5)))
checkpoint = {"state_dict": model.state_dict()}
ema.on_save_checkpoint(trainer, model, checkpoint)
ema.on_validation_end(trainer, model)
with torch.no_grad():
    own = float(model(torch.ones(1, 5)))
check_finite(model, 3)
own_parts = get_own_parameters(model)["0.weight"].detach()
part = unshard_tensor(own_parts) if rank < 0 else own_parts.to_local()
part[: 1 if rank < 1 else 0] = float("nan")  # in the first's part
try:
    check_finite(model, 4)
    refused = False
except NonFiniteError:
    refused = True
states = {key: {n: v.tolist() for n, v in checkpoint[key].items()} for key in ("state_dict", "current_model_state")}
print(json.dumps({"norms": norms, "seen": seen, "own": own, "refused": refused, **states}))
"""


@pytest.mark.slow
def test_two_processes_with_half_the_weights_each_are_one_with_all(tmp_path):
    commands = [[sys.executable, "-c", TWO, str(tmp_path / "store"), str(rank)] for rank in (-1, 0, 1)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    one, *two = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert one["seen"] != one["own"]
    for found in two:
        for key in ("norms", "seen", "own"):
            assert found[key] == pytest.approx(one[key], rel=1e-5), key
        for key in ("state_dict", "current_model_state"):
            for name, value in one[key].items():
                torch.testing.assert_close(torch.tensor(found[key][name]), torch.tensor(value))
    assert all(found["refused"] for found in (one, *two))
