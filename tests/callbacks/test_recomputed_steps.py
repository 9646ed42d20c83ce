"""Steps computed twice: the same training, and a stop at a single bit."""

import re
import struct
from types import SimpleNamespace

import pytest
import torch
from conftest import BARE, FEW, TINY, refuses
from pytorch_lightning.strategies import FSDPStrategy, SingleDeviceStrategy
from test_ddp import train_with_two
from test_resume import OPTIONS, VIEWS, same_tensors
from two_processes import sentences, status_of, two_processes

from vitlab.callbacks.recomputed_steps import RecomputedSteps
from vitlab.checkpoints import file
from vitlab.errors import ConfigError, RecomputationError
from vitlab.tasks import Task

TWICE = ["callbacks=[default,recomputed_steps]", "callbacks.recomputed_steps.every_n_steps=1"]
SHORT = [*BARE, *FEW, "trainer.max_epochs=2", "callbacks.latest_state.every_n_steps=2"]
LATE = ["optimizer.trained=head", "optimizer.unfreeze_step=4", "optimizer.lr=1e-3"]
SELF = [*VIEWS, "data.images.train_transform=null", *(o for o in OPTIONS if not o.startswith(("mixing", "model.")))]


def state(folder):
    latest = file.read(folder / "checkpoints" / "latest.ckpt")
    return {key: latest[key] for key in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "sums")}


def losses(folder):
    """Rows of metrics.csv without what clocks say."""
    return [line.split(",")[:3] for line in (folder / "metrics.csv").read_text().splitlines()]


def flip(tensor, place, bit):
    """Flip one bit of a number in a float32 tensor, in place."""
    flat = tensor.detach().view(-1)
    (bits,) = struct.unpack("<I", struct.pack("<f", flat[place].item()))
    flat[place] = struct.unpack("<f", struct.pack("<I", bits ^ (1 << bit)))[0]


@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        pytest.param([*TINY, *SHORT, "mixing=mixup", "model.drop_rate=0.1"], "default", id="dropout"),
        pytest.param([*TINY, *OPTIONS], "default,ema", id="micro_batches", marks=pytest.mark.slow),
        pytest.param([*TINY, *SHORT, "model=resnet20"], "default", id="batch_norm", marks=pytest.mark.slow),
        pytest.param([*TINY[1:], *SELF], "default,ema", id="self_distillation", marks=pytest.mark.slow),
        pytest.param([*TINY, *SHORT, "trainer.precision=bf16-mixed"], "default", id="bf16", marks=pytest.mark.slow),
        *(
            pytest.param([*TINY, *SHORT, f"optimizer={name}", *LATE], "default", id=name, marks=pytest.mark.slow)
            for name in ("adamw", "sgd", "lamb", "lion", "muon")
        ),
    ],
)
def test_training_is_what_it_would_be_without(cli, options, callbacks):
    plain = cli("train", *options, f"callbacks=[{callbacks}]", folder="plain", tiny=False)
    twice = cli("train", *options, f"callbacks=[{callbacks},recomputed_steps]", TWICE[1], folder="twice", tiny=False)
    assert (plain.status, twice.status) == (0, 0), plain.err + twice.err
    assert same_tensors(state(plain.folder), state(twice.folder))
    assert losses(plain.folder) == losses(twice.folder)
    assert not (twice.folder / "recomputed").exists()


def in_gradients(monkeypatch):
    """Flip the lowest bit of one gradient in the second of the two computations of step 3."""
    step, calls = Task.training_step, []

    def watched(self, batch, batch_idx):
        calls.append(self.global_step)
        if calls.count(2) == 2 and calls[-1] == 2:
            weight = self.model.get_parameter("blocks.0.attn.qkv.weight")
            weight.register_post_accumulate_grad_hook(lambda parameter: flip(parameter.grad, 5, 0))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Task, "training_step", watched)


def in_the_update(monkeypatch):
    """Flip the lowest bit of one weight after the first of the two updates of step 3."""
    step, calls = torch.optim.AdamW.step, []

    def watched(self, closure=None):
        loss = step(self, closure)
        calls.append(None)
        if len(calls) == 5:  # two for each step
            flip(self.param_groups[0]["params"][0], 1, 0)
        return loss

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param(
            *(in_gradients, "gave other gradients the second time, in model.blocks.0.attn.qkv.weight.grad"),
            marks=pytest.mark.slow,
        ),
        (in_the_update, "gave other weights the second time, in model."),
    ],
)
def test_one_bit_ends_the_run_before_it_is_saved_and_it_can_be_gone_on_with(cli, monkeypatch, fault, told):
    plain = cli("train", *SHORT, folder="plain")
    with monkeypatch.context() as context:
        fault(context)
        run = cli("train", *SHORT, *TWICE, folder="run")
    assert run.status == 8
    assert refuses(run, f"step 3, computed twice, {told}"), run.err
    (kept,) = (run.folder / "recomputed").iterdir()
    assert kept.name == "step_3_rank_0.pt"
    found = torch.load(kept, weights_only=True)
    assert len(found["names"]) == 1
    (name,) = found["names"]
    assert (found["first"][name] != found["second"][name]).sum() == 1
    assert any(len(tensor) == 64 for tensor in found["batches"].values())
    assert file.read(run.folder / "checkpoints" / "latest.ckpt")["global_step"] == 2
    assert cli("train", "resume=run", tiny=False).status == 0
    assert same_tensors(state(plain.folder), state(run.folder))


def test_a_step_of_every_none_is_refused(cli):
    run = cli("train", *SHORT, TWICE[0], "callbacks.recomputed_steps.every_n_steps=0")
    assert (run.status, refuses(run, "every_n_steps 0")) == (2, True), run.err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"precision": "16-mixed"}, "float16 steps cannot be computed twice; set trainer.precision=bf16-mixed"),
        ({"strategy": FSDPStrategy()}, "steps of a sharded model cannot be computed twice; set trainer=ddp"),
        (
            {"strategy": SingleDeviceStrategy("meta")},
            "sums of a GPU have no fixed order; set +trainer.deterministic=true",
        ),
    ],
)
def test_a_run_that_cannot_be_computed_twice_is_refused(changes, told):
    fitting = {"precision": "32-true", "strategy": SingleDeviceStrategy("cpu")}
    callback = RecomputedSteps(every_n_steps=1)
    callback.check_run(SimpleNamespace(**fitting), None, None)
    with pytest.raises(ConfigError, match=re.escape(told)):
        callback.check_run(SimpleNamespace(**fitting | changes), None, None)


@pytest.mark.slow
def test_two_processes_compute_each_step_twice(tmp_path):
    words = [*SHORT, "trainer.max_epochs=1", "data.device_batch_size=16"]
    for name, more in (("plain", []), ("twice", TWICE)):
        (tmp_path / name).mkdir()
        train_with_two(tmp_path / name, *TINY, *words, *more)
    assert same_tensors(state(tmp_path / "plain" / "two"), state(tmp_path / "twice" / "two"))


ERRS = """
from vitlab.callbacks import recomputed_steps
copy_gradients, calls = recomputed_steps.copy_gradients, []
def errs(module):
    found = copy_gradients(module)
    calls.append(1)
    if rank == "{rank}" and len(calls) == 3:
        next(iter(found.values())).view(-1)[0] += 1e-3
    return found
recomputed_steps.copy_gradients = errs
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_fault_of_one_of_two_processes_ends_both_with_its_status(tmp_path, rank):
    words = ["data=digits", "trainer.max_epochs=2", *TWICE, "callbacks.recomputed_steps.every_n_steps=3"]
    with two_processes(tmp_path, *words, patch=ERRS.format(rank=rank)) as first:
        assert status_of(first, tmp_path) == RecomputationError.status
    assert "step 6, computed twice" in sentences(tmp_path)[0]
    (kept,) = (tmp_path / "run" / "recomputed").iterdir()
    assert kept.name == f"step_6_rank_{rank}.pt"
