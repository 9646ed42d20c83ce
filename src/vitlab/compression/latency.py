"""Measure how long each of several ways takes, in turn, so that whatever else the machine does disturbs them all.

B batch, C channels, H W image height and width
"""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.compression.candidates import Run

TURN = 10  # calls of one way before the next has its turn


class Latency(NamedTuple):
    """Milliseconds for a batch: the median, and what 95 % of the batches stay below."""

    p50: float
    p95: float


def measure_latency(runs: Mapping[str, Run], images: Tensor, batch_size: int) -> Iterator[dict[str, Latency]]:
    """Run the images (n, C, H, W) in batches of one size through each way, `TURN` batches at a time; after each turn,
    yield what was measured so far. A call before each turn is not counted: it brings the weights back into the cache,
    and waits for the threads of the way before."""
    batches = list(images.split(batch_size))
    batches = [batch for batch in batches if len(batch) == batch_size] or [repeat_images(images, batch_size)]
    taken: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for start in range(0, len(batches), TURN):
            for name, run in runs.items():
                run(batches[start])
                for batch in batches[start : start + TURN]:
                    begin = time.perf_counter()
                    run(batch)
                    taken[name].append(1000 * (time.perf_counter() - begin))
            yield {name: Latency(*map(float, np.percentile(times, [50, 95]))) for name, times in taken.items()}


def repeat_images(images: Tensor, batch_size: int) -> Tensor:
    """Fill a batch with too few images. (n, C, H, W) -> (B, C, H, W)"""
    return images[torch.arange(batch_size) % len(images)]


def count_turns(num_images: int, batch_size: int) -> int:
    """Count the turns that `measure_latency` yields after."""
    return -(-max(num_images // batch_size, 1) // TURN)
