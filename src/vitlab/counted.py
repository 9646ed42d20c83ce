"""Randomness that is counted, not carried: a seed is a pure function of where it is used.

No generator keeps state between samples, steps or processes, so that the number of workers changes nothing and a
resumed run draws what the uninterrupted one would have drawn.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def counted_seed(stream: str, *counters: int) -> int:
    """A 63-bit seed for one purpose (`stream`) at one place (seed, epoch, index …); other places are independent."""
    key = "/".join([stream, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def seeded_cpu(seed: int) -> Iterator[None]:
    """torch's CPU generator, which torchvision's transforms draw from, at `seed`; afterwards as it was before."""
    generator = torch.default_generator  # torch.manual_seed would walk the stack each time, for CUDA's sake
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def seed_device(device: torch.device, seed: int) -> None:
    """Set the generators that layers draw from on `device`: dropout, drop path."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
