"""Splits are disjoint, complete, stratified, and the same in every run and on every machine."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.data import Digits
from vitlab.data.splits import carve

DIGITS = {  # size, first indices, and the sum of all: recorded
    "train": (1258, [0, 1, 2, 3, 4, 5, 6, 7], 1112049),
    "val": (180, [10, 25, 32, 46, 50, 68, 75, 90], 163738),
    "test": (359, [21, 24, 28, 34, 35, 37, 39, 42], 337919),
}

class_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)
shares = st.lists(st.integers(0, 10), min_size=1, max_size=4).filter(any)


@settings(deadline=None)
@given(class_sizes, shares)
def test_splits_are_disjoint_complete_and_stratified(class_sizes, shares):
    targets = np.random.RandomState(1).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    fractions = {f"split{k}": share / sum(shares) for k, share in enumerate(shares)}
    parts = carve(targets, fractions)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(targets)))
    for name, fraction in fractions.items():
        assert (np.diff(parts[name]) > 0).all()
        for label, size in enumerate(class_sizes):
            assert abs((targets[parts[name]] == label).sum() - fraction * size) <= 1


def seed_everything(seed):
    for generator in (random.seed, np.random.seed, torch.manual_seed):
        generator(seed)


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_no_global_seed_changes_a_split_and_no_split_changes_a_global_generator():
    splits = []
    for seed in (0, 1):
        seed_everything(seed)
        splits.append(carve(np.arange(100) % 3, {"train": 0.5, "val": 0.5})["val"].tolist())
    drawn = draws()
    assert splits[0] == splits[1]
    seed_everything(1)
    assert drawn == draws()


def test_a_split_is_a_random_choice():
    assert carve(np.zeros(100), {"train": 0.5, "val": 0.5})["train"].tolist() != list(range(50))


def test_the_digits_are_divided_as_recorded():
    """So that a change of numpy, of the machine or of the code is seen."""
    parts = carve(Digits().open()["train"].targets, {"train": 1 - (0.1 + 0.2), "val": 0.1, "test": 0.2})
    assert {name: (len(part), part[:8].tolist(), int(part.sum())) for name, part in parts.items()} == DIGITS


@pytest.mark.parametrize("fractions", [{"train": 0.7, "val": 0.2}, {"train": 0.9, "val": 0.2}])
def test_fractions_that_do_not_add_up_are_refused(fractions):
    with pytest.raises(ValueError, match="add up to 1"):
        carve(np.zeros(10), fractions)
