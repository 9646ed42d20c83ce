"""Means between two log entries: over what is finite, and over a resume."""

from types import SimpleNamespace

import pytest
import torch

from vitlab.tasks.task import FiniteMean, Task


@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_does_not_count(odd):
    mean = FiniteMean()
    for value in (4.0, odd, 2.0):
        mean.update(torch.tensor(value))
    assert mean.compute() == 3.0
    mean.reset()
    mean.update(torch.tensor([1.0, odd, 4.0]))
    assert mean.compute() == 2.5


def restored(rank, ranks, saved):
    """The mean that this one of several ranks goes on with, after it has added 2.0."""
    mean = FiniteMean()
    mean.update(torch.tensor(2.0))
    task = SimpleNamespace(
        training_sums=lambda: {"loss": mean}, global_rank=rank, trainer=SimpleNamespace(world_size=ranks)
    )
    Task.on_load_checkpoint(task, {"sums": {"loss": saved}})
    return mean.mean_value.item(), mean.weight.item()


def test_each_rank_goes_on_with_its_own_sums_and_of_another_number_the_first_one_with_all():
    saved = {"mean_value": torch.tensor([1.0, 10.0]), "weight": torch.tensor([1.0, 4.0])}
    assert [restored(rank, 2, saved) for rank in range(2)] == [(3.0, 2.0), (12.0, 5.0)]
    assert [restored(rank, 3, saved) for rank in range(3)] == [(13.0, 6.0), (2.0, 1.0), (2.0, 1.0)]
    assert restored(0, 1, saved) == (13.0, 6.0)
    together = {name: value.sum() for name, value in saved.items()}  # of one process, and of earlier versions
    assert [restored(rank, 2, together) for rank in range(2)] == [(13.0, 6.0), (2.0, 1.0)]
