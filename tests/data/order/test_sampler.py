"""Training takes the same global batches however they are shared out; evaluation takes every sample once."""

from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from vitlab.data.order.sampler import EvaluationOrder, Key, TrainingOrder, class_shares


class Sharing(NamedTuple):
    """Ways to take one global batch; `alone` is the plain one."""

    world_size: int
    accumulation: int
    micro_batch: int

    @property
    def global_batch_size(self):
        return self.world_size * self.accumulation * self.micro_batch


sharings = st.builds(Sharing, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))


def training_order(n, global_batch_size, *, seed=0, rank=0, world_size=1, accumulation=1, position=0, **options):
    return TrainingOrder(
        n,
        global_batch_size=global_batch_size,
        accumulation=accumulation,
        rank=rank,
        world_size=world_size,
        seed=seed,
        position=lambda: position,
        **options,
    )


def epoch_from(position, n=23, size=4, **options):
    """One epoch's worth of global batches, from a step on."""
    return list(training_order(n, size, position=position, **options))


def shared_epoch(n, sharing, position=0):
    """The global batch of each step, put together from all ranks and micro-batches."""
    ranks = [
        list(
            training_order(
                n,
                sharing.global_batch_size,
                rank=rank,
                world_size=sharing.world_size,
                accumulation=sharing.accumulation,
                position=position,
            )
        )
        for rank in range(sharing.world_size)
    ]
    assert all(len(piece) == sharing.micro_batch for pieces in ranks for piece in pieces)
    micro_batches = [list(chain(*pieces)) for pieces in zip(*ranks, strict=True)]
    accumulated = range(0, len(micro_batches), sharing.accumulation)
    return [list(chain(*micro_batches[i : i + sharing.accumulation])) for i in accumulated]


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 3))
def test_an_epoch_is_whole_global_batches_of_a_permutation(n, size, epoch):
    order = training_order(n, size, position=epoch * (n // size))
    batches = list(order)
    assert len(batches) == len(order) == n // size
    assert all(len(batch) == size for batch in batches)
    samples = [sample for batch in batches for sample in batch]
    assert {key.epoch for key in samples} <= {epoch}
    assert len(set(samples)) == len(samples)
    assert sorted(order.permutation(epoch)) == list(range(n))
    assert [key.index for key in samples] == order.permutation(epoch)[: len(samples)].tolist()


def test_order_and_left_out_tail_differ_between_epochs():
    epochs = [[key.index for batch in epoch_from(5 * epoch) for key in batch] for epoch in range(100)]
    tails = [frozenset(range(23)) - set(epoch) for epoch in epochs]
    assert all(len(tail) == 3 for tail in tails)
    assert len(set(map(tuple, epochs))) == 100
    assert frozenset.union(*tails) == set(range(23))  # none is left out for ever


@settings(deadline=None)
@given(st.integers(1, 70), sharings)
def test_ranks_and_micro_batches_partition_the_same_global_batches(n, sharing):
    alone = training_order(n, sharing.global_batch_size)
    assert [sorted(batch) for batch in shared_epoch(n, sharing)] == [sorted(batch) for batch in alone]


@settings(deadline=None)
@given(st.integers(0, 12))
def test_a_start_at_any_step_gives_the_rest_of_the_uninterrupted_order(position):
    uninterrupted = [batch for epoch in range(4) for batch in epoch_from(5 * epoch)]
    assert epoch_from(position) == uninterrupted[position : position + 5]


@settings(deadline=None)
@given(st.integers(0, 20), st.sampled_from([(1, 12), (2, 3), (3, 1), (4, 3), (6, 2), (12, 1)]))
def test_a_resume_on_other_ranks_goes_on_with_the_right_samples(position, sharing):
    world_size, accumulation = sharing
    resumed = shared_epoch(50, Sharing(world_size, accumulation, 12 // world_size // accumulation), position)
    assert [sorted(batch) for batch in resumed] == [sorted(batch) for batch in epoch_from(position, 50, 12)]


def test_the_position_is_asked_anew_for_each_epoch():
    step = [0]
    order = TrainingOrder(
        8, global_batch_size=4, accumulation=1, rank=0, world_size=1, seed=0, position=lambda: step[0]
    )
    first = list(order)
    step[0] = 2
    assert [{key.epoch for key in batch} for batch in [*first, *order]] == [{0}, {0}, {1}, {1}]


@pytest.mark.parametrize("position", [0, 7])
def test_another_seed_gives_another_order(position):
    orders = [str(epoch_from(position, seed=seed)) for seed in (0, 0, 1, 2)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 7))
def test_evaluation_takes_every_sample_once_and_pads_nothing(n, batch_size, world_size):
    orders = [EvaluationOrder(n, batch_size=batch_size, rank=r, world_size=world_size) for r in range(world_size)]
    for order in orders:
        assert len(list(order)) == len(order)
        assert all(1 <= len(batch) <= batch_size for batch in order)
    samples = [sample for order in orders for batch in order for sample in batch]
    assert sorted(samples) == [Key(0, index) for index in range(n)]


# -- shards that are read a few at a time

GROUPS = np.repeat(np.arange(7), [5, 1, 8, 3, 6, 4, 3])[np.random.RandomState(0).permutation(30)]


@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_the_shards_of_a_window_come_together_in_an_order_of_all(window, epoch):
    order = training_order(30, 4, groups=GROUPS, window=window).permutation(epoch)
    assert sorted(order) == list(range(30))
    shards, left = GROUPS[order], set(range(7))
    while left:
        together = min(window, len(left))
        first = list(dict.fromkeys(shards))[:together]
        count = np.isin(GROUPS, first).sum()
        assert set(shards[:count]) == set(first)  # nothing of another window among them
        assert len(shards) == count or not np.isin(shards[count:], first).any()
        shards, left = shards[count:], left - set(first)


def test_within_a_window_the_samples_of_its_shards_are_shuffled():
    order = training_order(3000, 4, groups=np.arange(3000) // 300, window=5).permutation(0)
    for half in np.split(order, 2):
        assert len(set(half // 300)) == 5
        assert ((half // 300)[:-1] != (half // 300)[1:]).mean() == pytest.approx(0.8, abs=0.05)  # 1 - 1/5
        assert kstest(np.argsort(half // 300 * 10_000 + np.arange(1500)) / 1500, "uniform").pvalue > 1e-3


def test_windows_and_their_order_differ_between_epochs():
    order = training_order(30, 4, groups=GROUPS, window=2)
    firsts = {frozenset(GROUPS[order.permutation(epoch)][:4]) for epoch in range(40)}
    assert len(firsts) > 10
    assert len({tuple(order.permutation(epoch)) for epoch in range(40)}) == 40


def test_one_window_for_all_shards_is_a_shuffle_of_all():
    assert len(set(GROUPS[training_order(30, 4, groups=GROUPS, window=7).permutation(0)][:5])) > 2
    plain = training_order(30, 4).permutation(3)
    assert np.array_equal(training_order(30, 4, groups=GROUPS).permutation(3), plain)
    assert np.array_equal(training_order(30, 4, window=2).permutation(3), plain)


@pytest.mark.parametrize("position", [1, 6, 7, 13])
def test_a_resume_within_a_window_goes_on_with_the_right_samples(position):
    options = {"n": 30, "size": 4, "groups": GROUPS, "window": 2}
    uninterrupted = [batch for epoch in range(4) for batch in epoch_from(7 * epoch, **options)]
    assert epoch_from(position, **options) == uninterrupted[position : position + 7]


# -- repeated augmentation


@pytest.mark.parametrize("repeats", [1, 2, 3, 4])
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_sample_comes_several_times_with_another_view_each(repeats, epoch):
    order = training_order(50, 12, repeats=repeats, position=4 * epoch)
    batches = list(order)
    assert len(batches) == len(order) == 4
    first = order.permutation(epoch)[: 48 // repeats].tolist()
    assert sorted(chain(*batches)) == sorted(Key(epoch, index, view) for index in first for view in range(repeats))


@pytest.mark.parametrize("repeats", [2, 3])
def test_neighbours_in_a_batch_which_mixing_pairs_are_of_different_samples(repeats):
    for batch in training_order(1000, 16, repeats=repeats):
        assert [key.view for key in batch] == sorted(key.view for key in batch)
        assert all(key.index != before.index for before, key in zip([batch[-1], *batch], batch, strict=False))


def test_the_views_of_a_sample_may_lie_on_two_ranks():
    def shares(world_size):
        ranks = [list(training_order(40, 8, repeats=3, rank=r, world_size=world_size)) for r in range(world_size)]
        return [list(chain(*pieces)) for pieces in zip(*ranks, strict=True)]

    assert shares(1) == shares(2) == shares(4)


# -- the size of a step's images


@pytest.mark.parametrize("position", [0, 3, 7])
def test_every_key_of_a_step_has_its_image_size(position):
    sizes = {step: 16 + 4 * step for step in range(20)}
    keys = epoch_from(position, image_size=sizes.__getitem__, accumulation=2)
    asked = [{key.image_size for key in micro_batch} for micro_batch in keys]
    assert asked == [{sizes[step]} for step in range(position, position + 5) for _ in range(2)]


def test_without_a_schedule_the_crop_has_its_own_size():
    assert {key.image_size for batch in epoch_from(0) for key in batch} == {0}


# -- classes that come as often as each other

class_sizes = st.lists(st.integers(0, 200), min_size=1, max_size=8).filter(any)
balances = st.floats(0.01, 1)


def unequal(class_sizes):
    return np.random.RandomState(0).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))


@given(class_sizes, balances)
def test_shares_add_up_and_are_proportional_to_a_power_of_the_counts(class_sizes, balance):
    counts = np.array(class_sizes)
    shares = class_shares(counts, balance)
    weights = np.array([n ** (1 - balance) if n else 0 for n in class_sizes])
    assert shares.sum() == counts.sum()
    assert np.abs(shares - counts.sum() * weights / weights.sum()).max() < 1
    assert ((shares > 0) == (counts > 0)).all()
    order = np.argsort(counts, kind="stable")
    smaller, larger = shares[order][:-1], shares[order][1:]
    assert (smaller <= larger + (np.diff(counts[order]) == 0)).all()  # a rounding tells equal classes apart


@pytest.mark.parametrize(
    ("counts", "balance", "shares"),
    [
        ([100, 4], 1.0, [52, 52]),
        ([100, 4], 0.5, [87, 17]),  # 10 to 2 of 104: 86 2/3 and 17 1/3
        ([100, 4], 0.0, [100, 4]),
        ([5, 3, 2], 1.0, [4, 3, 3]),  # 3 1/3 each; the place that is left goes to the first
        ([0, 7, 3], 1.0, [0, 5, 5]),
        ([1, 1, 1], 0.3, [1, 1, 1]),
        ([6, 4, 1], 1.0, [4, 4, 3]),
        ([1, 2], 1.0, [1, 2]),  # to the class that has another sample
        ([2, 3, 5], 1.0, [3, 3, 4]),
    ],
)
def test_shares_that_can_be_worked_out(counts, balance, shares):
    assert class_shares(np.array(counts), balance).tolist() == shares


@settings(deadline=None)
@given(class_sizes, balances, st.integers(0, 3))
def test_a_balanced_epoch_repeats_as_little_as_it_can(class_sizes, balance, epoch):
    targets = unequal(class_sizes)
    order = training_order(len(targets), 1, classes=targets, class_balance=balance).permutation(epoch)
    shares = class_shares(np.array(class_sizes), balance)
    assert len(order) == len(targets)
    assert np.bincount(targets[order], minlength=len(class_sizes)).tolist() == shares.tolist()
    for k, size in enumerate(class_sizes):
        own = order[targets[order] == k]
        for begin in range(0, len(own) - size + 1, max(size, 1)):  # one round after the other
            assert len(set(own[begin : begin + size])) == size
        times = np.bincount(own, minlength=len(targets))[targets == k] if size else np.zeros(1)
        assert times.max() - times.min() <= 1


def test_balanced_classes_are_mixed_and_their_samples_differ_between_epochs():
    targets = unequal([900, 60, 40])
    order = training_order(1000, 4, classes=targets, class_balance=1.0)
    epochs = [order.permutation(epoch) for epoch in range(5)]
    assert len({tuple(epoch) for epoch in epochs}) == 5
    seen = [frozenset(epoch[targets[epoch] == 0]) for epoch in epochs]
    assert all(len(part) == 334 for part in seen)
    assert len(frozenset.union(*seen)) > 700  # of 900: others of the large class in each epoch
    for epoch in epochs:
        parts = [np.bincount(targets[part], minlength=3) for part in np.split(epoch, 10)]
        assert 15 < np.min(parts) < np.max(parts) < 52  # 33, with a standard deviation of 4.5


@pytest.mark.parametrize("position", [0, 1, 5, 6, 13])
def test_a_balanced_order_resumes_and_is_shared_out_as_any_other(position):
    options = {"n": 23, "size": 4, "classes": unequal([15, 6, 2]), "class_balance": 1.0}
    uninterrupted = [batch for epoch in range(4) for batch in epoch_from(5 * epoch, **options)]
    assert epoch_from(position, **options) == uninterrupted[position : position + 5]
    halves = [epoch_from(position, rank=rank, world_size=2, **options) for rank in (0, 1)]
    together = [first + second for first, second in zip(*halves, strict=True)]
    assert together == uninterrupted[position : position + 5]


def test_without_balance_the_order_is_the_plain_one():
    targets = unequal([15, 6, 2])
    plain = training_order(23, 4).permutation(2)
    assert np.array_equal(training_order(23, 4, classes=targets).permutation(2), plain)
    assert not np.array_equal(training_order(23, 4, classes=targets, class_balance=0.5).permutation(2), plain)
