"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) as timm has it, fast on any CPU.

A CPU without instructions for bfloat16 multiplies in it 30 to 60 times more slowly than in float32 (AVX2, widths of 192
to 768), and a training step of a small ViT takes 14 times as long as with float32.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from timm.optim import muon

WITH_BFLOAT16 = ("AVX512", "SVE256")  # for which oneDNN has products in bfloat16, as torch names them


class Muon(muon.Muon):
    """timm's Muon, which iterates in float32 on a CPU without instructions for bfloat16, and elsewhere in bfloat16."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with iterate_in(find_dtype(self.param_groups[0]["params"][0].device)):
            return super().step(closure)  # type: ignore[no-untyped-call]


def find_dtype(device: torch.device) -> torch.dtype:
    """Find the number format in which a device multiplies matrices soonest."""
    is_slow = device.type == "cpu" and torch.backends.cpu.get_cpu_capability() not in WITH_BFLOAT16
    return torch.float32 if is_slow else torch.bfloat16


@contextmanager
def iterate_in(dtype: torch.dtype) -> Iterator[None]:
    """Give timm's iteration of Newton and Schulz, which has an argument for it that nobody passes, a number format."""
    iteration = muon.zeropower_via_newtonschulz
    muon.zeropower_via_newtonschulz = functools.partial(iteration, dtype=dtype)
    try:
        yield
    finally:
        muon.zeropower_via_newtonschulz = iteration
