"""Training takes the same global batches however they are shared out; evaluation takes every sample once."""

from itertools import chain
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def training_order(n, global_batch_size, *, seed=0, rank=0, world_size=1, accumulation=1, position=0):
    return TrainingOrder(
        n,
        global_batch_size=global_batch_size,
        accumulation=accumulation,
        rank=rank,
        world_size=world_size,
        seed=seed,
        position=lambda: position,
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
    assert {e for e, _ in samples} <= {epoch}
    assert len(set(samples)) == len(samples)
    assert sorted(order.permutation(epoch)) == list(range(n))
    assert [index for _, index in samples] == order.permutation(epoch)[: len(samples)].tolist()


def test_order_and_left_out_tail_differ_between_epochs():
    epochs = [[index for batch in epoch_from(5 * epoch) for _, index in batch] for epoch in range(100)]
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
    assert [{e for e, _ in batch} for batch in [*first, *order]] == [{0}, {0}, {1}, {1}]


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
    assert sorted(samples) == [(0, index) for index in range(n)]
