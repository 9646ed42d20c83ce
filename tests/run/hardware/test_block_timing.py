"""The block of a model that stands for its work, and a trial of it that leaves everything as it was."""

from types import SimpleNamespace

import pytest
import torch
from conftest import vit_options

from vitlab.models import VisionTransformer, small_resnet
from vitlab.run.hardware import block_timing
from vitlab.run.hardware.block_timing import (
    FEW,
    ComputeMode,
    find_typical_block,
    least_seconds,
    run_in_turns,
    set_products,
    use_one_thread,
)
from vitlab.run.hardware.precision import ONEDNN, PLAIN


def vit(**changes):
    return VisionTransformer(**vit_options(**changes))


def images():
    return torch.empty(FEW, 1, 32, 32, device="meta")


def resnet(in_chans):
    return small_resnet(depth=8, width=4, patch_size=None, in_chans=in_chans, num_classes=10)


@pytest.mark.parametrize(
    ("model", "kind", "shape"),
    [(lambda: vit(depth=3), "Block", (FEW, 65, 32)), (lambda: resnet(1), "BasicBlock", (FEW, 4, 32, 32))],
)
def test_the_block_is_what_the_model_repeats(model, kind, shape):
    model = model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    call = find_typical_block(model, images())
    assert (type(call.module).__name__, call.args[0].shape) == (kind, shape)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in (*model.modules(), *call.module.modules()))
    seconds = least_seconds(call, 4, {"one": ComputeMode(), "other": ComputeMode(bf16=True)})
    assert seconds.keys() == {"one", "other"}
    assert all(value > 0 for value in seconds.values())


def test_a_trial_leaves_random_numbers_products_and_threads_as_they_are():
    call, state = find_typical_block(vit(), images()), torch.get_rng_state()
    before = torch.__config__.parallel_info(), set_products(None)
    assert least_seconds(call, 2, {"plain": ComputeMode(products=PLAIN), "other": ComputeMode(products=ONEDNN)})
    assert torch.equal(torch.get_rng_state(), state)
    assert (torch.__config__.parallel_info(), set_products(None)) == before


@pytest.mark.parametrize("told", [False, True])
def test_one_thread_computes_and_then_as_many_as_before(told):
    threads = torch.get_num_threads()
    if told:
        torch.set_num_threads(2)
    try:
        before = torch.__config__.parallel_info()
        with use_one_thread():
            within = torch.__config__.parallel_info()
        assert all(f"{name}_threads() : 1\n" in within for name in ("mkl_get_max", "omp_get_max"))
        assert torch.__config__.parallel_info() == before
    finally:
        torch.set_num_threads(threads)


def test_a_trial_ends_in_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(block_timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def taking(seconds):
        def step():
            now[0] += seconds
            return seconds

        return step

    assert run_in_turns({"a": taking(0.1), "b": taking(0.3)}, end=3.0) == {"a": 0.1, "b": 0.3}
    assert now[0] < 3.3
    assert run_in_turns({"a": taking(1.0), "b": taking(9.0)}, end=now[0] + 3.0) is None


def test_what_cannot_be_called_without_values_has_no_block_and_one_that_fails_no_time():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    assert find_typical_block(Odd(), images()) is None
    call = find_typical_block(vit(), images())
    assert least_seconds(call._replace(args=()), 2, {"plain": ComputeMode()}) is None
