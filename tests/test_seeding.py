"""Counted numbers are uniform, independent, and nothing but a function of their counters."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, spearmanr

from vitlab.seeding import draw_numbers, mix


def grid(seeds=4, epochs=10, indices=500):
    """(B, 3): every seed, epoch and index."""
    axes = np.arange(seeds), np.arange(epochs), np.arange(indices)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


def test_the_numbers_never_change():
    numbers = draw_numbers("crop", np.array([[0, 0, 0, 0], [7, 3, 123_456_789, 2]]), 3)
    assert numbers.tolist() == [
        [0.44204131820871895, 0.7913135474733936, 0.6313423537554077],
        [0.17226756776849905, 0.05440043997612043, 0.9109128396582922],
    ]


@pytest.mark.slow
def test_another_process_gets_the_same():
    code = "import numpy as np; from vitlab.seeding import *; print(draw_numbers('x', np.array([[5, 6]]), 4).tolist())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(draw_numbers("x", np.array([[5, 6]]), 4).tolist())


def test_a_row_depends_on_its_own_counters_only():
    counters = grid(2, 3, 20)
    together = draw_numbers("crop", counters, 5)
    alone = np.concatenate([draw_numbers("crop", counters[k : k + 1], 5) for k in range(len(counters))])
    assert np.array_equal(together, alone)
    assert np.array_equal(draw_numbers("crop", counters[::-1], 5), together[::-1])
    assert np.array_equal(draw_numbers("crop", counters, 2), together[:, :2])
    assert len(np.unique(together)) == together.size


def test_streams_and_the_order_of_counters_matter():
    rows = [draw_numbers(stream, np.array([c]), 8) for stream in "ab" for c in ((1, 2), (2, 1), (1, 2, 0), (3, 0))]
    assert len({row.tobytes() for row in rows}) == 8


@pytest.mark.parametrize("place", range(4))
def test_numbers_are_uniform(place):
    numbers = draw_numbers("crop", grid(), 4)[:, place]
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert kstest(numbers, "uniform").pvalue > 1e-3
    last_bits = (numbers * 2**53).astype(np.int64) & 255
    assert chisquare(np.bincount(last_bits, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["seed", "epoch", "index"])
def test_neighbours_are_independent(axis):
    numbers = draw_numbers("crop", grid(20, 20, 50), 3).reshape(20, 20, 50, 3)
    first, second = np.delete(numbers, -1, axis), np.delete(numbers, 0, axis)
    for a in range(3):
        for b in range(3):
            assert spearmanr(first[..., a].ravel(), second[..., b].ravel()).pvalue > 1e-4
    cells = np.floor(8 * first[..., 0]) * 8 + np.floor(8 * second[..., 0])
    assert chisquare(np.bincount(cells.astype(int).ravel(), minlength=64)).pvalue > 1e-4


def test_the_numbers_of_a_row_are_independent():
    numbers = draw_numbers("crop", grid(), 6)
    correlation = np.corrcoef(numbers.T) - np.eye(6)
    assert abs(correlation).max() < 5 / len(numbers) ** 0.5


def test_every_bit_changes_half_of_the_result():
    values = np.random.RandomState(0).randint(0, 2**63, 2000).astype(np.uint64)
    for bit in range(64):
        changed = mix(values) ^ mix(values ^ np.uint64(1 << bit))
        assert abs(np.unpackbits(changed.view(np.uint8)).mean() * 64 - 32) < 0.6
