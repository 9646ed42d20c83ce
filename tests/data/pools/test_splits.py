"""Splits are disjoint, complete, stratified, and the same in every run and on every machine."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.data import Digits
from vitlab.data.pools.splits import carve, choose_few
from vitlab.data.targets import OneClass, SeveralClasses
from vitlab.errors import ConfigError

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
    parts = carve(OneClass(targets), fractions)
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
        splits.append(carve(OneClass(np.arange(100) % 3), {"train": 0.5, "val": 0.5})["val"].tolist())
    drawn = draws()
    assert splits[0] == splits[1]
    seed_everything(1)
    assert drawn == draws()


def test_a_split_is_a_random_choice():
    assert carve(OneClass(np.zeros(100)), {"train": 0.5, "val": 0.5})["train"].tolist() != list(range(50))


def test_the_digits_are_divided_as_recorded():
    """So that a change of numpy, of the machine or of the code is seen."""
    parts = carve(Digits().open()["train"].targets, {"train": 1 - (0.1 + 0.2), "val": 0.1, "test": 0.2})
    assert {name: (len(part), part[:8].tolist(), int(part.sum())) for name, part in parts.items()} == DIGITS


@pytest.mark.parametrize("fractions", [{"train": 0.7, "val": 0.2}, {"train": 0.9, "val": 0.2}])
def test_fractions_that_do_not_add_up_are_refused(fractions):
    with pytest.raises(ValueError, match="add up to 1"):
        carve(OneClass(np.zeros(10)), fractions)


# -- several classes an image

hots = st.tuples(st.integers(1, 60), st.integers(1, 6), st.integers(0, 2**31)).map(
    lambda size: (np.random.RandomState(size[2]).rand(*size[:2]) < 0.4).astype(np.uint8)
)


@settings(deadline=None)
@given(hots, shares)
def test_splits_of_several_classes_are_disjoint_and_complete(hot, shares):
    fractions = {f"split{k}": share / sum(shares) for k, share in enumerate(shares)}
    parts = carve(SeveralClasses(hot), fractions)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(hot)))
    for name, fraction in fractions.items():
        assert (np.diff(parts[name]) > 0).all()
        assert fraction or not len(parts[name])


def test_each_of_several_classes_is_divided_in_the_fractions():
    """Rare classes are where a random division goes wrong: 30 of 3000, of which a tenth is 3."""
    hot = (np.random.RandomState(0).rand(3000, 6) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.01]).astype(np.uint8)
    fractions = {"train": 0.7, "val": 0.1, "test": 0.2}
    parts = carve(SeveralClasses(hot), fractions)
    for name, fraction in fractions.items():
        assert abs(len(parts[name]) - fraction * 3000) <= 3
        assert np.abs(hot[parts[name]].sum(axis=0) - fraction * hot.sum(axis=0)).max() <= 3
        none = (hot.sum(axis=1) == 0).nonzero()[0]
        assert np.isin(none, parts[name]).any()
    again = carve(SeveralClasses(hot), fractions)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)
    assert parts["val"].tolist() != list(range(2100, 2400))


def test_one_class_an_image_is_divided_as_exactly_as_several_could_be():
    targets = np.arange(200) % 4
    parts = carve(SeveralClasses(np.eye(4, dtype=np.uint8)[targets]), {"train": 0.5, "val": 0.25, "test": 0.25})
    for name, count in {"train": 25, "val": 12.5, "test": 12.5}.items():
        assert np.abs(np.bincount(targets[parts[name]]) - count).max() <= 1


# -- few labels


@settings(deadline=None)
@given(class_sizes, st.integers(0, 3))
def test_so_many_of_each_class_out_of_those_that_there_are(class_sizes, seed):
    targets = np.random.RandomState(1).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    targets = np.concatenate([targets, np.zeros(50, np.int64)])
    indices = np.flatnonzero(np.arange(len(targets)) < sum(class_sizes))  # the rest belongs to another split
    names = [f"class {k}" for k in range(len(class_sizes))]
    taken = [choose_few(OneClass(targets), indices, k, seed, names) for k in range(1, min(class_sizes) + 1)]
    for k, some in enumerate(taken, start=1):
        assert (np.diff(some) > 0).all()
        assert np.isin(some, indices).all()
        assert np.bincount(targets[some]).tolist() == [k] * len(class_sizes)
    assert all(np.isin(fewer, more).all() for fewer, more in pairwise(taken))


def test_the_seed_draws_the_few():
    targets, indices = np.arange(400) % 4, np.arange(400)
    drawn = [tuple(choose_few(OneClass(targets), indices, 5, seed, list("abcd"))) for seed in (0, 0, 1, 2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    often = np.bincount(
        np.concatenate([choose_few(OneClass(targets), indices, 50, seed, list("abcd")) for seed in range(200)])
    )
    assert 60 < often.min() < often.max() < 140  # of 100


def test_more_labels_than_there_are_images_of_a_class_are_refused():
    with pytest.raises(ConfigError, match=r"data\.split\.labels_per_class is 3, and 'b' has 2 training image"):
        choose_few(OneClass(np.array([0, 1, 1, 0, 0])), np.arange(5), 3, 0, ["a", "b"])
    with pytest.raises(ConfigError, match="'c' has 0"):
        choose_few(OneClass(np.array([0, 1, 1, 0, 0])), np.arange(5), 1, 0, ["a", "b", "c"])
    with pytest.raises(ConfigError, match="one class each"):
        choose_few(SeveralClasses(np.eye(3, dtype=np.uint8)), np.arange(3), 1, 0, ["a", "b", "c"])
