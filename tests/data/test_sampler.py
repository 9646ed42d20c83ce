"""Training takes the same global batches however they are shared out; evaluation takes every sample once."""

from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from vitlab.data.batch import Key
from vitlab.data.sampler import EvaluationOrder, TrainingOrder


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
def test_a_sample_stands_several_times_in_a_row_with_another_view_each(repeats, epoch):
    order = training_order(50, 12, repeats=repeats, position=4 * epoch)
    batches = list(order)
    assert len(batches) == len(order) == 4
    keys = list(chain(*batches))
    rows = [keys[start : start + repeats] for start in range(0, len(keys), repeats)]
    assert all(row == [Key(epoch, row[0].index, view) for view in range(repeats)] for row in rows)
    assert [row[0].index for row in rows] == order.permutation(epoch)[: 48 // repeats].tolist()


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
