"""Find the block of a model that stands for its work, and time it, forward and backward on random numbers, to see which
way of computing takes less."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from vitlab.measurements import Seconds
from vitlab.skeleton import copy_without_values

LIMIT = 3.0  # seconds that a trial may take
ROUNDS = 11
ENOUGH = 0.05  # seconds of one step that tell enough
FEW = 2  # samples that a call was made with: batch normalisation takes no fewer


class BlockCall(NamedTuple):
    """A module without values, on the device "meta", the inputs of one call of it, there too, and the floating-point
    operations that this takes."""

    module: nn.Module
    operations: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def find_typical_block(model: nn.Module, *inputs: Any) -> BlockCall | None:
    """Find the block that a model repeats: of the kind of module of which there are many that compute much together, as
    the product of both says, the one that computes most. A model that repeats nothing is its own block.

    The tensors of `inputs` are on the device "meta", and nothing is computed. Returns None for a model that cannot be
    called there.
    """
    hollow, counter = copy_without_values(model, "meta").train(), FlopCounterMode(display=False)
    calls: dict[str, BlockCall] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            args, kwargs = tree_map(lambda leaf: leaf, (args, kwargs))  # lists may grow after the call
            calls.setdefault(name, BlockCall(module, 0, args, kwargs))

        return hook

    containers = [(name, module) for name, module in hollow.named_modules() if any(True for _ in module.children())]
    hooks = [module.register_forward_pre_hook(keep(name), with_kwargs=True) for name, module in containers]
    try:
        with counter:
            hollow(*inputs)
    except Exception:  # whatever a model of another library raises when its tensors hold nothing
        return None
    for hook in hooks:
        hook.remove()
    counts, root = counter.get_flop_counts(), type(model).__name__
    work = {name: sum(counts.get(f"{root}.{name}" if name else root, {}).values()) for name in calls}
    kinds: dict[type, list[str]] = {}
    for name, call in calls.items():
        if name == "" or type(call.module) is not nn.Sequential:  # which is no kind
            kinds.setdefault(type(call.module), []).append(name)
    repeated = max(kinds.values(), key=lambda names: len(names) * sum(work[name] for name in names))
    chosen = max(repeated, key=work.__getitem__)
    return calls[chosen]._replace(operations=work[chosen])


class ComputeMode(NamedTuple):
    """How a CPU computes: under autocast to bfloat16 or not, and the `products` of float32 matrices in one of torch's
    ways; None: as they are set."""

    bf16: bool = False
    products: str | None = None


def least_seconds(call: BlockCall, batch_size: int, ways: Mapping[str, ComputeMode]) -> Seconds | None:
    """Time steps of a block in each of the `ways`, on as many of `batch_size` samples as take a twentieth of a second.
    Returns the least time of each way; None where three seconds are too few, or the block cannot be called by itself.

    One thread computes, and its own time counts, not that of the clock: threads wait for each other where others use
    the machine, a hundred times as long as they compute. Random numbers and products of the run stay as they are.
    `call` was made with `FEW` samples on the device "meta".
    """
    end = time.perf_counter() + LIMIT
    with torch.random.fork_rng(devices=[]), use_one_thread():
        try:
            module, few, (first, *_) = fill_module(call.module), make_inputs(call, FEW), ways.values()
            step(module, few, first)  # what is done once
            samples = max(FEW, min(batch_size, int(FEW * ENOUGH / step(module, few, first))))
            inputs = make_inputs(call, samples)
            return run_in_turns({name: partial(step, module, inputs, way) for name, way in ways.items()}, end)
        except Exception:  # whatever a block of another library raises when it is called by itself
            return None


def run_in_turns(steps: Mapping[str, Callable[[], float]], end: float) -> Seconds | None:
    """Take the steps in turns, in an order that rotates, until `end`. Returns the least seconds of each, the first left
    out; None where one of them has no more."""
    names, times = list(steps), {name: list[float]() for name in steps}
    for number in range(ROUNDS + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if time.perf_counter() < end:
                times[name].append(steps[name]())
    return {name: min(times[name][1:]) for name in names} if all(len(times[name]) > 1 for name in names) else None


def step(module: nn.Module, inputs: BlockCall, way: ComputeMode) -> float:
    """Go forward and backward; return the seconds that this thread computes."""
    before = set_products(way.products)
    try:
        start = time.thread_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=way.bf16):
            outputs = module(*inputs.args, **inputs.kwargs)
        learned = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
        torch.autograd.backward([leaf.float().sum() for leaf in learned])
        return time.thread_time() - start
    finally:
        set_products(before)
        for leaf in (*module.parameters(), *tree_leaves((inputs.args, inputs.kwargs))):
            if isinstance(leaf, Tensor):
                leaf.grad = None


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Let torch compute with one thread, and afterwards as before. `torch.set_num_threads` alone would not do: after it
    MKL shares products out in another way than where it was never told a number, and they may get other last digits."""
    threads = torch.get_num_threads()
    with threadpool_limits(1, user_api="openmp"):
        was_told = re.search(r"mkl_get_max_threads\(\) : (?!1$)", torch.__config__.parallel_info(), re.MULTILINE)
        if was_told:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if was_told:
                torch.set_num_threads(threads)


def set_products(kind: str | None) -> str | None:
    """Let a CPU multiply float32 matrices in another way; return the one before, None where torch knows only one. None
    changes nothing."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    before = getattr(matmul, "fp32_precision", None)
    if matmul is not None and None not in (before, kind) and before != kind:
        matmul.fp32_precision = kind
    return before


@torch.no_grad()
def fill_module(module: nn.Module) -> nn.Module:
    """Give a module on the device "meta" small random numbers on the CPU."""
    module.to_empty(device="cpu")
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.normal_(std=0.02)
        else:
            tensor.zero_()
    return module.train()


def make_inputs(call: BlockCall, samples: int) -> BlockCall:
    """Give the call random inputs on the CPU, of so many samples."""

    def random(tensor: Tensor) -> Tensor:
        size = [samples, *tensor.shape[1:]] if tensor.shape[:1] == (FEW,) else tensor.shape
        if tensor.is_floating_point():
            return torch.randn(size).requires_grad_()
        return torch.full(size, tensor.dtype == torch.bool, dtype=tensor.dtype)

    args, kwargs = tree_map_only(Tensor, random, (call.args, call.kwargs))
    return call._replace(args=args, kwargs=kwargs)
