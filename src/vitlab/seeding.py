"""Seeds that are pure functions of where they are used: seed, epoch, step, sample.

No generator keeps state between samples, steps or processes. The number of workers therefore changes nothing, and a
resumed run draws the same numbers as an uninterrupted one.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


def make_seed(stream: str, *counters: int) -> int:
    """Return a 63-bit seed for one purpose, `stream`, and counters such as seed, epoch and index.

    Seeds of other streams or counters are independent.
    """
    key = "/".join([stream, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def draw_numbers(stream: str, counters: np.ndarray, count: int) -> np.ndarray:
    """Draw `count` numbers, uniform in [0, 1), for each row of counters. (B, counters) int -> (B, count) float64

    SplitMix64 (Steele et al., 2014, doi:10.1145/2660193.2660195): the state absorbs the counters one after the other;
    each number then mixes the state with its own position in the row.
    """
    state = np.full(len(counters), make_seed(stream), dtype=np.uint64)
    for counter in counters.T.astype(np.uint64):
        state = mix(state ^ counter)
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    return (mix(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53


def mix(x: np.ndarray) -> np.ndarray:
    """Apply SplitMix64's bijection of 64 bits: each bit of x changes half of the result's bits on average."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


@contextmanager
def seed_cpu(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator, which torchvision's transforms use, and restore its state afterwards."""
    generator = torch.default_generator  # torch.manual_seed costs more: it walks the stack for CUDA
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def seed_device(device: torch.device, seed: int) -> None:
    """Seed the generators that dropout and drop path use on `device`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
