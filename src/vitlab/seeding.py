"""Randomness that is counted, not carried: a seed is a pure function of where it is used.

No generator keeps state between samples, steps or processes, so that the number of workers changes nothing and a
resumed run draws what the uninterrupted one would have drawn.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


def counted_seed(stream: str, *counters: int) -> int:
    """Give a 63-bit seed for one purpose (`stream`) at one place (seed, epoch, index …); other places are
    independent."""
    key = "/".join([stream, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def counted_numbers(stream: str, counters: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers, uniform in [0, 1), at each of B places at once. (B, counters) int -> (B, count) float64

    SplitMix64 (Steele et al., 2014, doi:10.1145/2660193.2660195): the counters are taken in one after the other, then
    each number is the mix of what they left and its own place in the row.
    """
    state = np.full(len(counters), counted_seed(stream), dtype=np.uint64)
    for counter in counters.T.astype(np.uint64):
        state = mixed(state ^ counter)
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    return (mixed(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53


def mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix64's bijection of 64 bits: each bit of x changes half of the bits of the result."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@contextmanager
def seeded_cpu(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator, which torchvision's transforms draw from; afterwards it is as it was before."""
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
